/** Event logs: places in them, and what in a stream is an event. */
import type { Notice } from "./schema.js";

/** The place behind which to follow a log; undefined is its beginning. */
export function position(seq: number | bigint | undefined): string | undefined {
  return seq === undefined || seq === 0 || seq === 0n ? undefined : String(seq);
}

/** The place of a notice in its log; signs of life have none. */
export function sequence(notice: Notice): string | undefined {
  return notice.seq ? String(notice.seq) : undefined;
}

export async function* notices(all: AsyncIterable<Notice>): AsyncGenerator<Notice, void, undefined> {
  for await (const notice of all) if (notice.seq) yield notice;
}
