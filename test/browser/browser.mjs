// The Chromium of this machine, with a home of its own, for the scripts beside this one.
import { createRequire } from "node:module";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"];

export async function withBrowser(modules, executablePath, block) {
  const { chromium } = createRequire(`${modules}/`)("playwright-core");
  const profile = mkdtempSync(join(tmpdir(), "polyphony-browser-"));
  let browser;
  try {
    browser = await chromium.launch({ executablePath, headless: true, args: ARGUMENTS, env: { ...process.env, HOME: profile } });
    await block(browser);
  } finally {
    await browser?.close();
    rmSync(profile, { recursive: true, force: true });
  }
}
