"""Values that look like secrets, by their names or by their form. They are not written into files.

Two questions: whether a *name* is that of a secret (`masked`), and which parts of a *text* are secrets
(`without_secrets`: the value after such a name, and text with the form of a token, a private key or a password in an
address). Both are heuristics. They keep secrets out of files that are passed on; they do not protect against a
program that writes its secrets in another form.

Texts may be long and hostile, so the work is linear in their length: a pattern begins only where a word begins, its
repetitions are possessive, and the end of a value is found by scanning forward once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from meshrt.inspect.capping import cap

__all__ = ["MASK", "capped_message", "masked", "without_secrets", "without_secrets_in_command", "without_tokens"]

#: Replaces a value that looks like a secret.
MASK = "<masked>"

# ---- names -----------------------------------------------------------------------------------------------------------

#: Words of a name: the same in ``db_password``, ``dbPassword`` and ``DB-PASSWORD``.
_WORDS = re.compile(r"[A-Z]?[a-z]++|(?<![A-Z])[A-Z]++(?![a-z])|[A-Z]|[^\W_a-zA-Z]++")
#: Parts that make a name secret at any place in it, also run together: ``mypassword``, ``OPENAIAPIKEY``.
_PARTS = re.compile(
    r"password|passwd|passphrase|secret(?!ar)|credential|cookie|authorization|connectionstring|connstr"
    r"|(?:api|private|access|secret|ssh|auth|account|signing|encryption)key(?!w)|(?:auth|access|refresh|api|bearer)token"
)


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


#: Words that make a name secret without another word.
_ALONE = _set("pwd cred creds dsn jwt jwts passwort pem bearer")
#: A key is a secret if one of these words precedes it. ``key`` alone is mostly that of a dict.
_KEYS = _set(
    """api private access secret ssh rsa dsa ecdsa gpg pgp encryption signing master deploy account auth hmac aes fernet
    shared service storage subscription license host openai anthropic aws azure gcp google stripe wandb huggingface hf
    github gitlab"""
)
#: A token is a model's token if one of these precedes it. ``tokens`` are, unless an access word is in the name.
_MODEL_TOKENS = _set(
    """pad padding eos bos unk unknown cls sep mask masked next prev previous last first current special new image audio
    video start end stop begin per each one no n num total max min input output generated target predicted sampled
    text by of is unexpected invalid control prompt draft vocab"""
)
_ACCESS_TOKENS = _set("auth access refresh api bearer session secret hf github gitlab slack bot service")
#: Words that may follow ``token`` in the name of a secret; others change its meaning, as in ``token_count``.
_OF_TOKEN = _set("value secret str string text bytes header env key")
#: A pass is a password if it is alone, or follows one of these: ``forward_pass`` is not.
_PASSES = _set(
    """db database user admin root smtp imap ftp ssh http proxy mysql pg postgres redis mongo rabbitmq mq ldap login
    mail email server service account sudo my"""
)


def masked(name: str) -> bool:
    """Whether a variable, an attribute (``"self.password"``) or a key of this name probably holds a secret."""
    name = name.rpartition(".")[2]
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words:
        return False
    return (
        _PARTS.search("".join(words)) is not None
        or not _ALONE.isdisjoint(words)
        or _is_connection(words)
        or _is_key(words)
        or _is_token(words)
        or words[-1] == "auth"
        or (words[-1] == "pass" and (len(words) == 1 or words[-2] in _PASSES))
    )


def _is_connection(words: Sequence[str]) -> bool:
    return any(first in ("conn", "connection") and second in ("str", "string") for first, second in pairwise(words))


def _is_key(words: Sequence[str]) -> bool:
    return any(second in ("key", "keys") and first in _KEYS for first, second in pairwise(words))


def _is_token(words: Sequence[str]) -> bool:
    if words[-1] == "tokens":
        return not _ACCESS_TOKENS.isdisjoint(words)
    if "token" not in words:
        return False
    place = len(words) - 1 - words[::-1].index("token")
    last = place == len(words) - 1 or words[place + 1] in _OF_TOKEN
    return last and _MODEL_TOKENS.isdisjoint(words[:place])


# ---- texts -----------------------------------------------------------------------------------------------------------

#: A name followed by a value, in the text of a dict, a call, a header, a query or a command line.
_PAIR = re.compile(
    r"(?<![\w.-])(?P<option>--)?(?P<name>[\w.-]++)(?P<quote>\\*+['\"])?+"
    r"(?P<sign>\s*+(?:=>|:=|:(?!:)|=(?!=))\s*+|(?(option),?+\s++|(?!)))"
)
#: ... as one of two texts in brackets, as in a list of headers; and under its own key, as a YAML variable.
_LISTED = re.compile(
    r"(?P<bracket>[(\[])[bB]?(?P<quote>\\*+['\"])(?P<name>[\w.-]++)(?P=quote)\s*+,\s*+(?=[bB]?\\*+['\"])"
)
_NAMED = re.compile(
    r"(?<![\w.-])(?:name|key|header)(?P<quote>\\*+['\"])?+\s*+[:=]\s*+(?:[bBuU]?\\*+['\"])?+(?P<name>[\w.-]++)"
    r"(?:\\*+['\"])?+\s*+,?+\s*+(?:\\*+['\"])?+value(?:\\*+['\"])?+\s*+(?P<sign>[:=])\s*+",
    re.I,
)
#: The text from a type annotation after a name to the value.
_TYPED = re.compile(r"(?:\s*+\|\s*+[\w.]++(?:\[[^\[\]\n]{0,80}+\])?+){0,9}+\s++=(?!=)\s*+")
#: A further part of the value of a header, up to its own value if it has one.
_PART = re.compile(r";[^\S\n]*+[^\s:=;,'\"()\[\]{}]++(?P<sign>=(?![=>])|(?=[^\S\n]*+(?:$|[;'\"])))", re.M)
#: Longest second text of two in brackets, in characters; a longer one is masked whatever follows it.
_LISTED_MAX = 1000
#: How the value of a header begins, and that of a text.
_SCHEME = re.compile(r"(?:bearer|basic|digest|token)\s++", re.I)
_PREFIX = re.compile(r"[bBuUrRfF]{0,2}(?P<slashes>\\*+)(?P<quote>'''|\"\"\"|'|\")")
_PLAIN = re.compile(r"[^\s,;\[\](){}'\"]++")
_OPENING = re.compile(r"[\w.]*+[\[({]")
#: What is counted to find the end of a bracket; and the quote that ends a text, with the slashes before it.
_BRACKET = re.compile(r"(?<!\\)\\*+['\"]|[\[\](){}]")
_QUOTES = {quote: re.compile(r"(?<!\\)(\\*+)" + quote) for quote in ("'", '"', "'''", '"""')}

#: What is a secret by its form, at any place. The group ``key`` before it stays readable.
_FORMS = (
    # Keys and tokens of services, which begin with fixed prefixes.
    re.compile(
        r"(?<![\w-])(?:(?:sk|rk)-(?=[\w-]*\d)[\w-]{16,}+|[sr]k_(?:live|test)_\w{10,}+|whsec_\w{16,}+"
        r"|gh[pousr]_[A-Za-z0-9]{16,}+|github_pat_\w{16,}+|glpat-[\w-]{16,}+|hf_[A-Za-z0-9]{16,}+"
        r"|xox[a-z]-[\w-]{8,}+|xapp-[\w-]{8,}+|(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}(?!\w)|AIza[\w-]{30,}+"
        r"|npm_[A-Za-z0-9]{30,}+|pypi-[\w-]{30,}+|ya29\.[\w-]{16,}+|eyJ[\w-]{8,}+\.[\w.=-]++)"
    ),
    # A private key, also one whose beginning or end is missing.
    re.compile(
        r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?:(?!-----END )[\s\S])*+(?:-----END [A-Z ]{0,40}PRIVATE KEY-----)?+"
    ),
    re.compile(r"(?<![A-Za-z0-9+/=\\\s])[A-Za-z0-9+/=\\\s]++-----END [A-Z ]{0,40}PRIVATE KEY-----"),
    # The password in an address, unless it is a placeholder; the value of an authorization header.
    re.compile(
        r"(?P<key>(?<![a-z0-9+.-])[a-z][a-z0-9+.-]{1,30}+://[^\s/:@'\"]*+:)(?![{$<]|%[(s])[^\s/'\"]+(?=@)", re.I
    ),
    # ... and a token in the place of a user, longer than a user's name.
    re.compile(
        r"(?P<key>(?<![a-z0-9.-])https?://)(?![{$<]|%[(s])"
        r"(?:(?=[^\s/:@?#'\"]{20})|(?=[^\s/:@?#'\"]{12})(?=[^\s/:@?#'\"\d]*+\d))[^\s/:@?#'\"]++(?=@)",
        re.I,
    ),
    re.compile(r"(?P<key>(?<!\w)bearer\s++)[\w.~+/=-]{16,}+", re.I),
)


def without_secrets(text: str, *, prose: bool = False) -> str:
    """Return a text with masked secrets: values after secret names, and text with the form of a secret.

    Args:
        prose: The text is a message for people. Only names written as a key of a dict (``'token': ...``), as in
            ``password=...`` or as an option count; ``unexpected token: ')'`` is unchanged.
    """
    return without_tokens(_without_values(text, prose))


def capped_message(text: str, limit: int) -> str:
    """Return a message for people of so many characters, at most, with masked secrets."""
    # The part that is cut off may hold the name of a secret whose end is kept: most of it is searched first.
    return cap(without_secrets(cap(text, 4 * limit), prose=True), limit)


def without_tokens(text: str) -> str:
    """Return a text with masked secrets, by their form alone; for source code, where names precede no values."""
    for form in _FORMS:
        text = form.sub(_mask_of, text)
    return text


def _mask_of(found: re.Match[str]) -> str:
    # Keep the number of lines: the numbers of the lines below must not change.
    return (found.groupdict().get("key") or "") + MASK + "\n" * found[0].count("\n")


def _without_values(text: str, prose: bool) -> str:
    def of_pair(pair: re.Match[str]) -> int:
        return _end_of_value(text, pair.end(), pair) if _says_secret(pair, prose) else pair.end()

    def of_listed(pair: re.Match[str]) -> int:
        # A list of two texts may have any meaning; in a list of such lists, they are pairs.
        listed = pair["bracket"] == "(" or text[max(0, pair.start() - 2) : pair.start()].strip()[-1:] in ("[", ",")
        return _end_of_listed(text, pair) if listed and masked(pair["name"]) else pair.end()

    def of_named(pair: re.Match[str]) -> int:
        written = not prose or pair["quote"] is not None or pair["sign"] == "="
        return _end_of_value(text, pair.end(), pair) if written and masked(pair["name"]) else pair.end()

    for pattern, end_of in ((_LISTED, of_listed), (_NAMED, of_named), (_PAIR, of_pair)):
        text = _without(text, pattern, end_of)
    return text


def _without(text: str, pattern: re.Pattern[str], end_of: Callable[[re.Match[str]], int]) -> str:
    """Return a text without the values that begin behind what a pattern finds. ``end_of`` returns where one ends."""
    parts = []
    done = place = 0
    while (found := pattern.search(text, place)) is not None:
        place = found.end()
        end = end_of(found)
        if end > place:
            parts += [text[done:place], MASK]
            done = place = end
    return "".join(parts) + text[done:] if parts else text


def _says_secret(pair: re.Match[str], prose: bool) -> bool:
    written = pair["quote"] is not None or "=" in pair["sign"] or pair["option"] is not None
    name = pair["name"].rpartition(".")[2]
    if not written and (prose or name.lower() in ("pass", "auth")):
        return False  # "pass: 3, fail: 1"
    return masked(name)


def _end_of_listed(text: str, pair: re.Match[str]) -> int:
    """Return where the second of two texts in brackets ends; its beginning if more follow: these are not a pair."""
    near = text[pair.end() : pair.end() + _LISTED_MAX]
    prefix = _PREFIX.match(near)
    if prefix is None:
        return pair.end()
    end = _end_of_text(near, prefix.end(), prefix["quote"], len(prefix["slashes"]))
    if end == len(near):
        return _end_of_text(text, pair.end() + prefix.end(), prefix["quote"], len(prefix["slashes"]))
    return pair.end() + (end if near[end:].lstrip(" ,\n\t")[:1] in (")", "]") else 0)


def _end_of_value(text: str, start: int, pair: re.Match[str]) -> int:
    """Return where the value of a pair ends, with everything that belongs to it."""
    end = _end_of_one(text, start)
    if end == start:
        return start
    typed = _TYPED.match(text, end)
    if typed is not None:  # the first value is a type
        return max(_end_of_one(text, typed.end()), end)
    if pair["sign"].strip() == ":" and pair["name"].lower().endswith("cookie"):
        while (part := _PART.match(text, end)) is not None:
            end = _end_of_one(text, part.end()) if part["sign"] else part.end()
    return end


def _end_of_one(text: str, start: int) -> int:
    """Return where a value ends: a text at its quote, brackets at theirs; an incomplete one at the end of ``text``."""
    scheme = _SCHEME.match(text, start)
    place = scheme.end() if scheme is not None else start
    prefix = _PREFIX.match(text, place)
    if prefix is not None:
        return _end_of_text(text, prefix.end(), prefix["quote"], len(prefix["slashes"]))
    opening = _OPENING.match(text, place)
    if opening is not None:
        return _end_of_brackets(text, opening.end())
    plain = _PLAIN.match(text, place)
    return plain.end() if plain is not None else start


def _end_of_text(text: str, place: int, quote: str, slashes: int) -> int:
    """Return where a quoted text ends: an escaped quote has more slashes before it than the opening quote."""
    ends = (end.end() for end in _QUOTES[quote].finditer(text, place) if len(end[1]) <= slashes)
    return next(ends, len(text))


def _end_of_brackets(text: str, place: int) -> int:
    depth = 1
    while (mark := _BRACKET.search(text, place)) is not None:
        place = mark.end()
        sign = mark[0][-1]
        if sign in "'\"":
            place = _end_of_text(text, place, sign, len(mark[0]) - 1)
        else:
            depth += 1 if sign in "[({" else -1
            if not depth:
                return place
    return len(text)


def without_secrets_in_command(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a command with masked secrets: also the value after an option such as ``--password``."""
    shown = []
    hide = False
    for argument in arguments:
        shown.append(MASK if hide else without_secrets(argument, prose=True))
        hide = argument.startswith("--") and "=" not in argument and masked(argument)
    return shown
