// A browser with one page, which does what the lines of its standard input say. It ends with its input.
//
//   node driver.js '{"chromium": "/usr/bin/chromium", "options": [], "profile": "/an/empty/folder", "seconds": 60}'
//
//   {"do": "open", "url": "http://..."}
//   {"do": "press", "keys": ["Control", "Shift", "d"]}           all of them down, then up
//   {"do": "type", "text": "where"}
//   {"do": "click", "at": "css selector", "text": "rank 3"}      the first element that shows the text
//   {"do": "see", "at": "css selector", "texts": ["rank 3"]}     waits until each of the texts is shown by an element
//   {"do": "miss", "at": "css selector", "texts": ["rank 3"]}    waits until none of them is
//   {"do": "shoot", "path": "/a/picture.png"}
//
// Each line is answered by one: {"shown": [...]}, or {"error": "why not", "shown": [...]}, as when the seconds have not
// been enough. `shown` is what the elements of the selector show now: each its label, for screen readers, and its text.
'use strict';
const readline = require('readline');
const puppeteer = require('puppeteer-core');

const { chromium, options, profile, seconds } = JSON.parse(process.argv[2]);
const WAIT = { timeout: 1000 * seconds, polling: 50 };

// In the page: the elements of a selector, and what each of them shows. An editor's spaces are some that do not break.
function teach() {
    window.elementsAt = (selector) => [...document.querySelectorAll(selector)];
    window.shownBy = (element) =>
        `${element.getAttribute('aria-label') || ''} | ${element.textContent}`.replace(/\s+/g, ' ');
}

const deeds = {
    open: (page, { url }) => page.goto(url, { waitUntil: 'domcontentloaded', timeout: WAIT.timeout }),

    async press(page, { keys }) {
        for (const key of keys) {
            await page.keyboard.down(key);
        }
        for (const key of keys.reverse()) {
            await page.keyboard.up(key);
        }
    },

    type: (page, { text }) => page.keyboard.type(text),

    async click(page, { at, text }) {
        const find = (selector, wanted) => elementsAt(selector).find((element) => shownBy(element).includes(wanted));
        const element = await page.waitForFunction(find, WAIT, at, text);
        await element.click();
    },

    see: (page, { at, texts }) => page.waitForFunction((selector, wanted) => {
        const shown = elementsAt(selector).map(shownBy);
        return wanted.every((text) => shown.some((one) => one.includes(text)));
    }, WAIT, at, texts),

    miss: (page, { at, texts }) => page.waitForFunction((selector, unwanted) => {
        const shown = elementsAt(selector).map(shownBy);
        return !unwanted.some((text) => shown.some((one) => one.includes(text)));
    }, WAIT, at, texts),

    shoot: (page, { path }) => page.screenshot({ path }),
};

async function answer(page, request) {
    let error;
    await deeds[request.do](page, request).catch((thrown) => { error = String(thrown); });
    const shown = request.at ? await page.evaluate((selector) => elementsAt(selector).map(shownBy), request.at) : [];
    return { error, shown };
}

async function main() {
    // Through a pipe, so that the browser ends with this process, however that ends.
    const browser = await puppeteer.launch({
        executablePath: chromium, args: options, userDataDir: profile, pipe: true,
        defaultViewport: { width: 1600, height: 1100 },
    });
    const page = await browser.newPage();
    await page.evaluateOnNewDocument(teach);
    for await (const line of readline.createInterface({ input: process.stdin })) {
        console.log(JSON.stringify(await answer(page, JSON.parse(line))));
    }
    await browser.close();
}

main().catch((error) => {
    console.error(error.stack || String(error));
    process.exit(1);
});
