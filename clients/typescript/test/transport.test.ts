/** What the client does when connections and supervisors come and go, and with answers that are no receipts. The supervisor is a fake. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Execution, GoneError, Session } from "stockade";
import { done, fake } from "./fake.js";

describe("what is not kept any more", () => {
  for (const [says, document, gone] of [
    ["a page", { gone: { from: "3", first_available: "12" } }, { from: "3", first_available: "12" }],
    ["a code", { error: { code: "gone", message: "events up to 12 are not kept any more" } }, { from: "3" }],
  ] as const) {
    test(`is a GoneError of streams, said by ${says}`, async (t) => {
      const f = await fake(t, (_, answer) => answer.send(410, document));
      const stockade = f.client();
      const streams = [
        stockade.events({ after: 3 }),
        stockade.session("s-1").events({ after: 3 }),
        stockade.follow("GET /v1/intents/{intent_id}/frames", { path: { intent_id: "sha256:1" } }, "3", (event) => event.cursor),
      ];
      for (const stream of streams) {
        await assert.rejects(stream.next(), (e: GoneError) => {
          assert.ok(e instanceof GoneError, String(e));
          assert.deepEqual([e.code, e.gone], ["gone", gone]);
          return true;
        });
      }
    });
  }

  test("is passed over by who waits for the end", async (t) => {
    const f = await fake(t, (asked, answer) => {
      const after = new URL(asked.what.slice(4), "http://stockade").searchParams.get("after");
      if (after === "0") return answer.send(410, { frames: null, gone: { from: "0", first_available: "7" } });
      answer.send(200, { frames: [{ seq: 8 }], ...(after === "8" && { receipt: done("host.exec") }) });
    });
    const x = new Execution(new Session(f.client(), "s-1"), { exec_id: "x-1", intent_id: "sha256:1" });
    assert.equal((await x.wait()).outcome, "ok");
  });
});
