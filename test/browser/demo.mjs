// Two people chat with each other in real pages, over http and https: see test/http/test_demo.rb.
//   node demo.mjs FOLDER_OF_NODE_MODULES CHROMIUM FOLDER_FOR_PICTURES URL...
// Says what it saw as one line of JSON; anything that is not as it should be is an error.
import assert from "node:assert/strict";
import { withBrowser } from "./browser.mjs";

const [modules, executablePath, pictures, ...urls] = process.argv.slice(2);
const PATIENCE = 40_000;
const WIDE = { width: 1280, height: 800 };
const PHONE = { width: 360, height: 740 };

const complaints = [];
const seen = {};
let browser;

// Somebody with a browser of their own.
class Person {
  static async enter(url, name, { viewport = WIDE, room = "lobby" } = {}) {
    const person = new Person();
    person.name = name;
    person.context = await browser.newContext({ viewport, ignoreHTTPSErrors: true });
    person.page = await person.context.newPage();
    person.page.setDefaultTimeout(PATIENCE);
    person.page.on("pageerror", (error) => complaints.push(`${name}: ${error.message}`));
    person.page.on("console", (message) => { if (["error", "warning"].includes(message.type())) complaints.push(`${name}: ${message.text()}`); });
    await person.page.goto(`${url}/#${room}`);
    person.protocol = await person.page.evaluate(() => performance.getEntriesByType("navigation")[0].nextHopProtocol);
    await person.page.fill("#welcome-name", name);
    await person.page.press("#welcome-name", "Enter");
    await person.inRoom(room);
    return person;
  }

  inRoom(room) {
    return this.page.locator(`#status[data-state=live]`).waitFor()
      .then(() => this.page.waitForFunction((name) => document.getElementById("room-name").textContent === name, room));
  }

  async say(text) {
    await this.page.fill("#composer-text", text);
    await this.page.press("#composer-text", "Enter");
    await this.sees(text);
    await this.page.waitForFunction(() => !document.querySelector(".message.pending, .message.failed"));
  }

  sees(text) {
    return this.page.locator(".message .text").getByText(text, { exact: true }).last().waitFor();
  }

  // Nothing may be wider than the screen.
  async fits() {
    const [content, screen] = await this.page.evaluate(() => [document.documentElement.scrollWidth, window.innerWidth]);
    assert.ok(content <= screen, `${this.name}: ${content} pixels on a screen of ${screen}`);
  }

  picture(name) {
    return this.page.screenshot({ path: `${pictures}/demo-${name}.png` });
  }

  leave() {
    return this.context.close();
  }
}

async function converse(url) {
  const scheme = new URL(url).protocol.replace(":", "");
  const ann = await Person.enter(url, `Ann ${scheme}`);
  const bob = await Person.enter(url, `Bob ${scheme}`);

  await ann.say(`hello over ${scheme}`);
  await bob.sees(`hello over ${scheme}`);
  const markup = `<img src=x onerror=alert(1)> <b>${scheme}</b> & "quotes"`;
  await bob.say(markup);
  await ann.sees(markup);
  assert.equal(await ann.page.locator("#messages img, #messages b, #messages script").count(), 0);

  await ann.page.locator("#people-list").getByText(bob.name).waitFor();
  // It is shown for a while only: who begins to look afterwards may be too late.
  const typing = ann.page.locator("#typing").getByText(`${bob.name} is typing`).waitFor();
  await bob.page.locator("#composer-text").pressSequentially("hm");
  await typing;

  // What happens in another room is counted there.
  await ann.page.locator("[data-room=ruby]").click();
  await ann.inRoom("ruby");
  await bob.say("are you still here?");
  await ann.page.locator("[data-room=lobby] .badge").waitFor();
  await ann.page.locator("[data-room=lobby]").click();
  await ann.sees("are you still here?");

  await ann.page.reload();
  await ann.inRoom("lobby");
  await ann.sees(`hello over ${scheme}`);
  await ann.sees(markup);
  seen[scheme] = ann.protocol;
  await ann.picture(`${scheme}-chat`);
  return [ann, bob];
}

async function onThePhone(url) {
  const eve = await Person.enter(url, "Eve", { viewport: PHONE });
  await eve.say(`a very long word: ${"Donaudampfschifffahrt".repeat(12)}`);
  await eve.fits();
  await eve.picture("phone-chat");
  await eve.page.click("#rail-open");
  await eve.page.locator("[data-room=fibers]").click();
  await eve.inRoom("fibers");
  await eve.fits();
  await eve.page.click("#people-open");
  await eve.page.locator("#people-list").getByText("Eve").waitFor();
  await eve.page.keyboard.press("Escape");
  await watch(eve, url);
  await eve.fits();
  await eve.picture("phone-stats");
  await eve.leave();
}

async function watch(person, url) {
  await person.page.goto(`${url}/stats`);
  await person.page.locator("#tree").getByText("room lobby").waitFor();
  await person.page.locator("#tree").getByText("connection", { exact: true }).first().waitFor();
  await person.page.waitForFunction(() => Number(document.querySelector(".card .figure").textContent.match(/[\d.]+/)) > 0);
}

await withBrowser(modules, executablePath, async (launched) => {
  browser = launched;
  for (const url of urls) {
    const [ann, bob] = await converse(url);
    await bob.leave();
    await watch(ann, url);
    await ann.picture(`${new URL(url).protocol.replace(":", "")}-stats`);
    await ann.leave();
  }
  await onThePhone(urls[0]);
  assert.deepEqual(complaints, []);
  console.log(JSON.stringify(seen));
});
