/** What requests are put together from. */
import type { Stdin } from "./schema.js";

/** Without the members that are undefined: the supervisor reads strictly, and types may not say that they are there. */
export function defined<T extends object>(members: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined)) as { [K in keyof T]?: Exclude<T[K], undefined> };
}

/** Text and bytes as the contract has them. */
export function input(data: string | Uint8Array | Stdin): Stdin {
  if (typeof data === "string") return { inline_text: { text: data } };
  if (data instanceof Uint8Array) return { inline_bytes: { bytes: data } };
  return data;
}
