// Looks at the pages of a trace and of a tree as people do: see test/tools/test_pages.rb.
//   node pages.mjs FOLDER_OF_NODE_MODULES CHROMIUM FOLDER_FOR_PICTURES TRACE.html TREE.html
// Says what it saw as one line of JSON; anything that is not as it should be is an error.
import assert from "node:assert/strict";
import { withBrowser } from "./browser.mjs";

const [modules, executablePath, pictures, ...files] = process.argv.slice(2);
const complaints = [];

async function open(browser, file) {
  const page = await browser.newPage({ viewport: { width: 1200, height: 560 }, colorScheme: "light" });
  page.setDefaultTimeout(40_000);
  page.on("pageerror", (error) => complaints.push(`${file}: ${error.message}`));
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) complaints.push(`${file}: ${message.text()}`); });
  page.on("request", (request) => { if (!request.url().startsWith("file:")) complaints.push(`${file} asks for ${request.url()}`); });
  await page.goto(`file://${file}`);
  return page;
}

// `view`, `picked` and `yOf` are the page's own.
async function trace(browser, file) {
  const page = await open(browser, file);
  const shown = () => page.evaluate(() => view.to - view.from);
  const detail = () => page.locator("#detail").innerText();
  await page.screenshot({ path: `${pictures}/trace-page.png` });

  const whole = await shown();
  await page.keyboard.press("w");
  assert.ok(await shown() < whole, "W zooms in");
  await page.click("#out");
  await page.keyboard.press("0");
  assert.equal(await shown(), whole, "0 shows all");
  const box = await page.locator("#canvas").boundingBox();
  await page.mouse.move(box.x + 700, box.y + 60);
  await page.keyboard.down("Control");
  await page.mouse.wheel(0, -300);
  await page.keyboard.up("Control");
  await page.waitForFunction((before) => view.to - view.from < before, whole);
  await page.keyboard.press("0");

  await page.keyboard.press("/");
  await page.keyboard.type("queue");
  const found = await page.locator("#found").innerText();
  await page.keyboard.press("Enter");
  const first = await detail();
  await page.keyboard.press("Escape");
  assert.equal(await page.locator("#found").innerText(), "");

  await page.locator("#totals a").first().click();
  const longest = await detail();
  const middle = await page.evaluate(() => [x((from[picked] + to[picked]) / 2), yOf(fibers[row[picked]].at) + ROW / 2]);
  await page.evaluate(() => show(-1));
  await page.mouse.click(box.x + middle[0], box.y + middle[1]);
  assert.equal(await detail(), longest, "a click tells of what is there");
  await page.close();
  return { found, first, longest };
}

async function tree(browser, file) {
  const page = await open(browser, file);
  await page.screenshot({ path: `${pictures}/tree-page.png` });
  const visible = () => page.locator("li b:visible").allInnerTexts();
  const all = await visible();
  await page.fill("#search", "a lock");
  const locked = await visible();
  const found = await page.locator("#found").innerText();
  await page.fill("#search", "");
  await page.click("#close");
  const closed = await visible();
  await page.click("#open");
  assert.deepEqual(await visible(), all);
  await page.close();
  return { all, locked, found, closed };
}

await withBrowser(modules, executablePath, async (browser) => {
  const seen = { trace: await trace(browser, files[0]), tree: await tree(browser, files[1]) };
  assert.deepEqual(complaints, []);
  console.log(JSON.stringify(seen));
});
