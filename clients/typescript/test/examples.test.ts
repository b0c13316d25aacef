/** The examples of the guides, each as a program of its own, as they stand there. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { mkdir, mkdtemp, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Daemon, without } from "./daemon.js";

const root = join(fileURLToPath(import.meta.url), "../..");
const sources = join(root, "test", "examples");
const names = existsSync(sources) ? readdirSync(sources).filter((name) => name.endsWith(".ts")) : [];

describe("the guides", { skip: without || (names.length === 0 && "the examples are taken from the guides by go test ./integration -run TestTypeScript") }, () => {
  let daemon: Daemon;
  before(async () => {
    daemon = await Daemon.start();
  });
  after(() => daemon.stop());

  for (const name of names) {
    test(name.replace(/\.ts$/, ""), async () => {
      const code = readFileSync(join(sources, name), "utf8");
      const tree = await mkdtemp(join(daemon.directory, "tree-"));
      for (const name of [".git", "repo"]) await mkdir(join(tree, name));
      await writeFile(join(tree, "config"), "retries = 3\n");
      const ran = await promisify(execFile)(process.execPath, [join(root, "built", "examples", name.replace(/\.ts$/, ".js"))], {
        cwd: tree,
        env: { ...process.env, STOCKADE_SOCKET: daemon.socket },
      });
      assert.equal(ran.stderr, "");
      assert.deepEqual(ran.stdout.trimEnd().split("\n"), [...code.matchAll(/\/\/ → (.*)$/gm)].map((m) => m[1]));
    });
  }
});
