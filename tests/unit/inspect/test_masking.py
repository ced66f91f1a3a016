"""What looks like a secret, by name and by form; what does not; and that hostile texts take linear work."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshrt.inspect.masking import MASK, masked, without_secrets, without_secrets_in_command, without_tokens

#: Invented, in the forms of real ones; joined here, so that no scanner takes them for real.
TOKENS = {
    "openai": "sk-" + "proj-a1B2c3D4e5F6g7H8i9J0",
    "stripe": "sk_" + "live_a1B2c3D4e5F6g7",
    "github": "ghp_" + "a1B2c3D4e5F6g7H8i9J0a1B2c3D4e5F6g7H8",
    "github, fine-grained": "github_" + "pat_11ABCDEFG0a1B2c3_D4e5F6g7H8",
    "hugging face": "hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZ012345",
    "slack": "xoxb-" + "1234567890-abcdefghij",
    "aws": "AKIA" + "IOSFODNN7EXAMPLE",
    "web token": "eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N",
    "private key": "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIEow\nIBAAKC\n-----END RSA " + "PRIVATE KEY-----",
}


SECRETS = """
password db_passwd SECRET api_key apiKey OPENAI_API_KEY hf_token Authorization cookie_jar pwd PWD creds
aws_creds dsn SENTRY_DSN jwt conn_str connStr connection_string ssh_key sshKey private_key token self.token
auth_token accessToken access_tokens passphrase pass db_pass client_secret signing_key proxy_auth x-api-key
account_key token_value mypassword APIKEY settings.credentials
"""
READABLE = """
loss key keys batch author tokenizer token_ids token_id n_tokens max_tokens tokens tokens_seen_by token_count
token_type_ids eos_token next_token forward_pass n_pass passes compass bypass cache_key primary_key rng_key
query_key num_keys keypoints keyword secretary monkey authors authenticated passed password.length _ 3
"""


@pytest.mark.parametrize("name", SECRETS.split())
def test_names_of_secrets(name: str) -> None:
    assert masked(name)


@pytest.mark.parametrize("name", READABLE.split())
def test_names_of_what_a_person_wants_to_read(name: str) -> None:
    assert not masked(name)


@pytest.mark.parametrize("token", TOKENS.values(), ids=TOKENS)
def test_a_token_is_found_by_its_form_whatever_its_name_is(token: str) -> None:
    for text in (token, f"x = {token}", repr({"value": token}), repr([token, "b"]), repr(token.encode())):
        shown = without_secrets(text)
        assert MASK in shown and shown == without_secrets(text, prose=True) == without_tokens(text)
        for part in token.replace("-----", "\n").split("\n"):
            assert len(part) < 6 or part.endswith("KEY") or part not in shown


def test_a_part_of_a_private_key_is_found_too() -> None:
    key = TOKENS["private key"]
    assert without_tokens(f"a {key[:50]}") == f"a {MASK}\n\n\n"
    assert without_tokens(f"a, {key[40:]}, b").replace("\n", "") == f"a,{MASK}, b"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r"{'password': 'hun\'ter2', 'a': 1}", "{'password': M, 'a': 1}"),
        (r"""{"password": "hun\"ter2", "a": 1}""", """{"password": M, "a": 1}"""),
        (r"""'{"password": "hun\\"ter2", "a": 1}'""", """'{"password": M, "a": 1}'"""),
        (r"'{\'x\': \'y\', \'password\': \'hunter 2\', \'a\': 1}'", r"'{\'x\': \'y\', \'password\': M, \'a\': 1}'"),
        ("password='''hunter'2 3''', b=1", "password=M, b=1"),
        ("{'creds': ['hunter', '2)]'], 'c': 3}", "{'creds': M, 'c': 3}"),
        ("auth=('me', 'hunter)'), x=1", "auth=M, x=1"),
        ("Login(token=Token('hunter', n=3), n=4)", "Login(token=M, n=4)"),
        ("connect(password=b'hunter2', user='me')", "connect(password=M, user='me')"),
        ("{'password': 'hunter", "{'password': M"),
        ("['--password', 'hunter2', '--epochs', '3']", "['--password', M, '--epochs', '3']"),
        ("train.py --password hunter2 --epochs 3", "train.py --password M --epochs 3"),
        ("https://me:hun@ter@host/x", "https://me:M@host/x"),
        ("redis://:hunter2@host:6379", "redis://:M@host:6379"),
        ("[('Accept', '*'), ('Authorization', 'Bearer x')]", "[('Accept', '*'), ('Authorization', M)]"),
        ("[(b'cookie', b'a=1; b=2'), (b'host', b'h')]", "[(b'cookie', M), (b'host', b'h')]"),
        ("""[["x-api-key", "hun\\"ter2"], ["host", "h"]]""", """[["x-api-key", M], ["host", "h"]]"""),
        (f"('password', '{'hunter2' * 1000}", "('password', M"),
        ("""{"name": "password", "value": "hunter2"}""", """{"name": "password", "value": M}"""),
        (r"'{\'Key\': \'DB_PASSWORD\', \'Value\': \'x\'}'", r"'{\'Key\': \'DB_PASSWORD\', \'Value\': M}'"),
        ("Header(name='api_key', value='hunter2', n=1)", "Header(name='api_key', value=M, n=1)"),
        ("- name: DB_PASSWORD\n  value: hunter2\n- name: A", "- name: DB_PASSWORD\n  value: M\n- name: A"),
        ("Cookie: session=hunter2; other=hunter3\nHost: h", "Cookie: M\nHost: h"),
        ("'Set-Cookie: a=hunter2; Secure; b=\"3\"; HttpOnly', 1", "'Set-Cookie: M', 1"),
        ("cookie: hunter2; password: 'hunter3', n=1", "cookie: M; password: M, n=1"),
        ("password=>'hunter2', n=>1", "password=>M, n=>1"),
        ("password := 'hunter2'", "password := M"),
        ("password: str = 'hunter2', n: int = 1", "password: M, n: int = 1"),
        ("password: str | None = 'hunter2', n=1", "password: M, n=1"),
        ("creds: dict[str, str] = {'u': 'hunter2'}; n=1", "creds: M; n=1"),
        ("https://hunter2hunter2@github.com/x", "https://M@github.com/x"),
        ("git+https://AbCdEfGhIjKlMnOpQrSt@github.com/x", "git+https://M@github.com/x"),
        ("{'pwd': 'hunter2', 'dsn': 'host=db', 'key': 'k'}", "{'pwd': M, 'dsn': M, 'key': 'k'}"),
    ],
)
def test_a_value_is_masked_to_its_end(text: str, shown: str) -> None:
    assert without_secrets(text) == shown.replace("M", MASK)


@pytest.mark.parametrize(
    "text",
    [
        "token_ids=[1, 2], max_tokens=5, tokenizer=<T>, key=3",
        "{'eos_token': '</s>', 'n_tokens': 7}",
        "sk-learn-pipelines-and-more hf_hub ghp_",
        "tcp://node1:29500 and file:///a:b",
        "std::token::end",
        "pass: 3, fail: 1",
        "-----BEGIN CERTIFICATE-----",
        "a bearer of news",
        'f"postgres://{user}:{password_of(user)}@db"',
        "fields=('password', 'email', 'name'), columns=['password', 'email']",
        "{'name': 'loss', 'value': 3, 'token_ids': 4}; name: eos_token, value: 5",
        "https://someone@host/x https://h/@user2026user2026 ssh://git@host https://h?a@b f'https://{token_of_user1}@h'",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_secrets(text) == text


def test_a_message_for_people_is_no_list_of_values() -> None:
    text = "unexpected token: ')'; Incorrect password: try again"
    assert without_secrets(text, prose=True) == text
    assert without_secrets("{'token': 'x'}; password=x", prose=True) == f"{{'token': {MASK}}}; password={MASK}"
    assert without_secrets("KeyError: 'token'", prose=True) == "KeyError: 'token'"


def test_a_command_line() -> None:
    given = [
        "train.py",
        "--api-key",
        "hunter2",
        "--n",
        "3",
        "--token=hunter3",
        "pg://me:hunter4@db",
        "--max-tokens",
        "5",
    ]
    assert without_secrets_in_command(given) == [
        *("train.py", "--api-key", MASK, "--n", "3", f"--token={MASK}", f"pg://me:{MASK}@db", "--max-tokens", "5"),
    ]


def test_lines_below_keep_their_numbers() -> None:
    source = f"key = '''{TOKENS['private key']}'''\nuse(key)\n"
    assert without_tokens(source).split("\n")[4] == "use(key)"


#: Each begins what a pattern looks for again and again, and never ends it.
HOSTILE = (
    "a", "a.", "a-", "aB", "'", "\\",
    "password='", "password=\\'", "password=(", "password=['", "--password ", "password ",
    "k='\\", "token=bearer ", "a://", "a://b:", "ab://b:c", "sk-", "sk-a ", "sk-a-", "eyJ", "eyJaaaaaaaa.", "bearer ",
    "-----BEGIN PRIVATE KEY-----", "-----END ", "A-----END ", "AAAAAAAA\n", "key ", "pwd=''''", "password:[{(",
    "('password','", "('password', \\'", "[['token','a'", "(\\", "name:token value:", "name='", "name ",
    "cookie:a;b=1;", "cookie:a; ", "password:a|", "password:a | ", "password:a | b[", "http://", "http://a", "http://1a@",
)  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("unit", HOSTILE)
def test_work_is_linear_in_the_length_of_a_text(unit: str) -> None:
    """Work that grows with the square of 400,000 characters would not end within the time limit of a test."""
    for text in (unit * (400_000 // len(unit)), "password='" + unit * (400_000 // len(unit))):
        assert without_secrets(text) is not None


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["A", "a", "Aa", "A1", "_A", "É"])
def test_work_is_linear_in_the_length_of_a_name(unit: str) -> None:
    """As above, for a name that is as long; its last letter is of another kind than those before."""
    for last in ("a", "A", "_"):
        assert without_secrets(unit * (400_000 // len(unit)) + f"{last}=1").endswith("=1")


words = st.sampled_from(
    [*HOSTILE, "password", "=", ":", " ", "hunter2", ", ", "{", "}", "[", "]", '"', "\n", "--", "@"]
)


@given(st.lists(words, max_size=30).map("".join))
def test_any_text_can_be_masked(text: str) -> None:
    assert masked(text) in (True, False)
    assert len(without_secrets(text)) <= len(text) * (len(MASK) + 1)


@given(st.text(max_size=30), st.sampled_from(["password", "creds", "api_key"]), st.booleans())
def test_a_secret_never_shows_in_the_repr_of_a_dict(value: str, name: str, nested: bool) -> None:
    secret = f"{value}hunter2{value}"
    held = {"a": 1, name: secret, "b": [2]}
    for text in (repr(held), repr([held]), repr(str(held)), repr({"x": repr(held)} if nested else held)):
        assert "hunter2" not in without_secrets(text)
