import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { mkdtemp } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { Faulted, codes } from "stockade";
import { Daemon, without } from "./daemon.js";
import { degraded } from "./place.js";

const calls = Number(process.env["STOCKADE_TEST_CALLS"] ?? 1000);
const agents = 4;
const kills = 3;

/**
 * An agent's loop: small commands and changes of files, each with an effect of its own, while the supervisor is killed three
 * times and started again. Each effect is there once; what the client throws is what the contract names, and says the truth.
 */
test("a loop of an agent, with the supervisor killed three times", { skip: without }, async () => {
  const daemon = await Daemon.start();
  const tree = await mkdtemp(join(daemon.directory, "tree-"));
  let lost = 0;
  const stockade = daemon.client({ onLost: () => void lost++ });
  const s = await stockade.open({ profile: "workspace", mounts: [`${tree}:/work:rw`], workdir: "/work", accept_degraded: degraded() });

  let done = 0;
  let cut = 0;
  let failed = false;
  const killing = (async () => {
    for (let k = 1; k <= kills; k++) {
      while (done < (calls * k) / (kills + 1)) {
        if (failed) return;
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
      await daemon.kill();
      await daemon.start();
    }
  })();

  /** Once, by an operation that may be cut off: then what there is says whether it took place. */
  const surely = async (attempt: () => Promise<unknown>, isThere: () => Promise<boolean>) => {
    for (;;) {
      try {
        return await attempt();
      } catch (error) {
        assert.ok(error instanceof Faulted && codes[error.code] !== undefined, `not in the contract: ${error}`);
        assert.equal(error.code, "supervisor_restarted", String(error));
        cut++;
        if (await isThere()) return;
      }
    }
  };

  const agent = async (n: number) => {
    const log = `log-${n}`;
    await s.files.write(log, "");
    let content = "";
    for (let i = n; i < calls; i += agents, done++) {
      const line = `${i}\n`;
      if (i % 2 === 0) {
        await surely(
          async () => assert.equal((await s.exec(["sh", "-c", `echo ${i} >>${log}; echo did ${i}`])).stdout, `did ${i}\n`),
          async () => (await readFile(join(tree, log), "utf8")) === content + line,
        );
      } else {
        await surely(
          () => s.files.edit(log, content, content + line, { exact_only: true }).catch((e) => (content === "" ? s.files.write(log, line) : Promise.reject(e))),
          async () => (await readFile(join(tree, log), "utf8")) === content + line,
        );
      }
      content += line;
      if (content.length > 200) {
        assert.equal(await s.files.readText(log), content, "nothing is lost, nothing is there twice");
        await surely(() => s.files.write(log, ""), async () => (await readFile(join(tree, log), "utf8")) === "");
        content = "";
      }
    }
    assert.equal(await s.files.readText(log), content);
  };
  try {
    await Promise.all(Array.from({ length: agents }, (_, n) => agent(n)));
    await killing;
    assert.ok(lost >= kills, `the client met ${lost} lost connections in ${kills} kills`);
    console.log(`# ${calls} calls, ${kills} kills, ${lost} connections lost, ${cut} operations cut off and told so`);
  } finally {
    failed = true;
    await killing;
    stockade.close();
    await daemon.stop();
  }
});
