/** The file tools of a session. They see what a command sees; a change is whole or has not happened. */
import { FileError, settled } from "./errors.js";
import { defined } from "./members.js";
import type { Int64, Receipt, Routes, ToolChangeResult, ToolEditResult, ToolOutput, ToolPatchResult, ToolReadResult, ToolResult, ToolStatResult, ToolWriteResult } from "./schema.js";
import type { Session } from "./session.js";
import type { CallOptions } from "./transport.js";

type Tool = "read_file" | "write_file" | "edit_file" | "apply_patch" | "grep" | "glob" | "stat" | "exists" | "list_dir" | "mkdir" | "move" | "remove";
type Options<T extends Tool> = Omit<Routes[`POST /v1/sessions/{session_id}/fs/${T}`]["body"], "scope" | "path" | "pattern" | "content" | "old_string" | "new_string" | "patch" | "to"> & CallOptions;

/** What changes nothing is asked anew when a restart of the supervisor cut it off. */
const looks = new Set<Tool>(["read_file", "grep", "glob", "stat", "exists", "list_dir"]);
const tries = 10;

/** What a search or a list found, one a line. */
export interface Found extends Array<string> {
  /** There is more: `max_results`, or a ceiling of the grant or of the supervisor, cut it. */
  readonly truncated: boolean;
}

type Search<T extends "grep" | "glob" | "list_dir"> = Omit<Options<T>, "max_results"> & {
  /** So many at most. Absent: all, as far as the ceilings of the grant and of the supervisor go. */
  max_results?: Int64;
};

const unbounded = Number.MAX_SAFE_INTEGER;

export class Files {
  constructor(readonly session: Session) {}

  /** The bytes of a file, or of a range of it, in as many parts as it takes. One that is changed meanwhile is a FileError. */
  read(path: string, options: Options<"read_file"> = {}): Promise<Uint8Array> {
    return this.#read(path, "bytes", options);
  }

  /** Likewise, as text. A file that is none is a FileError. */
  async readText(path: string, options: Options<"read_file"> = {}): Promise<string> {
    return text(await this.#read(path, "utf8", options));
  }

  /** Gives a file its content. Content beyond 128 KiB travels as a blob: policy judges the request, not that. */
  async write(path: string, content: string | Uint8Array, options: Options<"write_file"> = {}): Promise<ToolWriteResult> {
    const large = content.length > 128 << 10;
    const named = large
      ? { blob_ref: { blob_ref: (await this.session.stockade.putBlob(content)).blob_ref } }
      : typeof content === "string"
        ? { inline_text: { text: content } }
        : { inline_bytes: { bytes: content } };
    return (await this.#use("write_file", { path, content: named }, options)).result.write!;
  }

  /** Replaces one text by another. */
  async edit(path: string, old_string: string, new_string: string, options: Options<"edit_file"> = {}): Promise<ToolEditResult> {
    return (await this.#use("edit_file", { path, old_string, new_string }, options)).result.edit!;
  }

  /** Changes any number of files, all or none. */
  async patch(patch: string, options: Options<"apply_patch"> = {}): Promise<ToolPatchResult> {
    return (await this.#use("apply_patch", { patch: { inline_text: { text: patch } } }, options)).result.patch!;
  }

  /** The lines that a regular expression matches, `path:line:text` each. */
  async grep(pattern: string, path?: string, options: Search<"grep"> = {}): Promise<Found> {
    const { grep } = (await this.#use("grep", { pattern, path, max_results: unbounded }, options)).result;
    return this.#found(grep!.matches, grep!.truncated, options);
  }

  /** The files whose paths a pattern matches, newest first. */
  async glob(pattern: string, path?: string, options: Search<"glob"> = {}): Promise<Found> {
    const { glob } = (await this.#use("glob", { pattern, path, max_results: unbounded }, options)).result;
    return this.#found(glob!.paths, glob!.truncated, options);
  }

  /** The names in a directory, as the tool lists them. */
  async list(path: string, options: Search<"list_dir"> = {}): Promise<Found> {
    const { list } = (await this.#use("list_dir", { path, max_results: unbounded }, options)).result;
    return this.#found(list!.entries, list!.truncated, options);
  }

  /** What is at a path. */
  async stat(path: string, options: Options<"stat"> = {}): Promise<ToolStatResult> {
    return (await this.#use("stat", { path }, options)).result.stat!;
  }

  async exists(path: string, options: Options<"exists"> = {}): Promise<boolean> {
    return (await this.#use("exists", { path }, options)).result.stat!.exists ?? false;
  }

  async mkdir(path: string, options: Options<"mkdir"> = {}): Promise<ToolChangeResult> {
    return (await this.#use("mkdir", { path }, options)).result.change!;
  }

  async move(path: string, to: string, options: Options<"move"> = {}): Promise<ToolChangeResult> {
    return (await this.#use("move", { path, to }, options)).result.change!;
  }

  async remove(path: string, options: Options<"remove"> = {}): Promise<ToolChangeResult> {
    return (await this.#use("remove", { path }, options)).result.change!;
  }

  /**
   * A range of a file, part by part: one answer has as much as the grant and the supervisor let it have. What follows the first is asked
   * for by its place, so that lines are counted here then.
   */
  async #read(path: string, encoding: "bytes" | "utf8", options: Options<"read_file">): Promise<Uint8Array> {
    const { key, max_bytes, max_lines, offset_bytes: _, start_line: __, ...rest } = options;
    let room = max_bytes === undefined ? Infinity : Number(max_bytes);
    let lines = Number(max_lines || Infinity);
    const parts: Uint8Array[] = [];
    let ask: Options<"read_file"> = options;
    for (let before: ToolReadResult | undefined; ; ) {
      const { receipt, result } = await this.#use("read_file", { encoding, path }, ask);
      const read = result.read!;
      if (before !== undefined && changed(before, read)) throw new FileError(receipt, "conflict", "changed_meanwhile", "it was changed while it was read", path);
      const content = await this.#content(read.content, options);
      const [part, ended] = head(content, lines);
      parts.push(part);
      room -= part.length;
      lines -= ended;
      if (!read.truncated || room <= 0 || lines <= 0) return new Uint8Array(Buffer.concat(parts));
      const at = read.next_offset_bytes!;
      if (content.length === 0) throw new FileError(receipt, "error", "read_failed", `nothing comes behind ${at}, though it does not end there`, path);
      before = read;
      ask = { ...rest, offset_bytes: at, ...(room < Infinity && { max_bytes: room }), ...(key !== undefined && { key: `${key}+${at}` }) };
    }
  }

  async #use<T extends Tool>(tool: T, ask: Record<string, unknown>, options: CallOptions): Promise<{ receipt: Receipt; result: ToolResult }> {
    const { key, signal, ...rest } = options;
    const route = `POST /v1/sessions/{session_id}/fs/${tool}` as const;
    for (let tried = 1; ; tried++) {
      const { document } = await this.session.stockade.call(route, { path: { session_id: this.session.id }, body: { ...ask, ...defined(rest) }, key, signal } as never);
      const receipt = document as Receipt;
      const cut = receipt.outcome === "faulted" && receipt.error_code === "supervisor_restarted";
      if (cut && key === undefined && looks.has(tool) && tried < tries) continue;
      settled(receipt);
      const result = receipt.payload!.file!;
      const said = Object.values(result).find((arm): arm is { status: string; error_code?: string; error_message?: string } => typeof arm === "object");
      if (said !== undefined && said.status !== "ok") {
        throw new FileError(receipt, said.status, said.error_code, said.error_message, String(ask["path"] ?? ask["pattern"] ?? ""));
      }
      return { receipt, result };
    }
  }

  async #found(lines: ToolOutput | undefined, truncated: boolean | undefined, options: CallOptions): Promise<Found> {
    const all = text(await this.#content(lines, options));
    return Object.defineProperty(all === "" ? [] : all.replace(/\n$/, "").split("\n"), "truncated", { value: truncated ?? false }) as Found;
  }

  async #content(output: ToolOutput | undefined, { signal }: CallOptions): Promise<Uint8Array> {
    if (output?.inline_text !== undefined) return new TextEncoder().encode(output.inline_text.text);
    if (output?.inline_bytes !== undefined) return output.inline_bytes.bytes;
    return output?.blob === undefined ? new Uint8Array() : this.session.stockade.blob(output.blob.blob_ref, { signal });
  }
}

/** Text, byte for byte what is in the file; of a character that a limit cut, nothing. */
function text(bytes: Uint8Array): string {
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes, { stream: true });
}

/** The first lines of a part, and how many of them end in it. */
function head(part: Uint8Array, lines: number): [head: Uint8Array, ended: number] {
  let [end, ended] = [0, 0];
  for (; ended < lines; ended++) {
    const at = part.indexOf(10, end);
    if (at < 0) return [part, ended];
    end = at + 1;
  }
  return [part.subarray(0, end), ended];
}

/** Whether two parts are not of the same file. Files that the kernel makes up while they are read have no size. */
function changed(before: ToolReadResult, after: ToolReadResult): boolean {
  return before.mtime_ns !== after.mtime_ns || (before.size_bytes !== after.size_bytes && before.size_bytes !== undefined && after.size_bytes !== undefined);
}
