/** The file tools of a session. They see what a command sees; a change is whole or has not happened. */
import { FileError, settled } from "./errors.js";
import type { Receipt, Routes, ToolChangeResult, ToolEditResult, ToolGlobResult, ToolGrepResult, ToolOutput, ToolPatchResult, ToolReadResult, ToolResult, ToolStatResult, ToolWriteResult } from "./schema.js";
import type { Session } from "./session.js";
import type { CallOptions } from "./transport.js";

type Tool = "read_file" | "write_file" | "edit_file" | "apply_patch" | "grep" | "glob" | "stat" | "exists" | "list_dir" | "mkdir" | "move" | "remove";
type Options<T extends Tool> = Omit<Routes[`POST /v1/sessions/{session_id}/fs/${T}`]["body"], "scope" | "path" | "pattern" | "content" | "old_string" | "new_string" | "patch" | "to"> & CallOptions;

/** What changes nothing is asked anew when a restart of the supervisor cut it off. */
const looks = new Set<Tool>(["read_file", "grep", "glob", "stat", "exists", "list_dir"]);
const tries = 10;

export class Files {
  constructor(readonly session: Session) {}

  /** The bytes of a file, or of a range of it. */
  async read(path: string, options: Options<"read_file"> = {}): Promise<Uint8Array> {
    const { result } = await this.#use("read_file", { encoding: "bytes", path }, options);
    return this.#content((result.read as ToolReadResult).content);
  }

  /** The text of a file, or of a range of it. A file that is none is a FileError. */
  async readText(path: string, options: Options<"read_file"> = {}): Promise<string> {
    const { result } = await this.#use("read_file", { encoding: "utf8", path }, options);
    return this.#text((result.read as ToolReadResult).content);
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
  async grep(pattern: string, path?: string, options: Options<"grep"> = {}): Promise<string[]> {
    const { result } = await this.#use("grep", { pattern, path }, options);
    return split(await this.#text((result.grep as ToolGrepResult).matches));
  }

  /** The files whose paths a pattern matches, newest first. */
  async glob(pattern: string, path?: string, options: Options<"glob"> = {}): Promise<string[]> {
    const { result } = await this.#use("glob", { pattern, path }, options);
    return split(await this.#text((result.glob as ToolGlobResult).paths));
  }

  /** The names in a directory, as the tool lists them. */
  async list(path: string, options: Options<"list_dir"> = {}): Promise<string[]> {
    const { result } = await this.#use("list_dir", { path }, options);
    return split(await this.#text(result.list!.entries));
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

  async #use<T extends Tool>(tool: T, ask: Record<string, unknown>, options: CallOptions): Promise<{ receipt: Receipt; result: ToolResult }> {
    const { key, signal, preferAsync: _, ...rest } = options;
    const route = `POST /v1/sessions/{session_id}/fs/${tool}` as const;
    for (let tried = 1; ; tried++) {
      const { document } = await this.session.stockade.call(route, { path: { session_id: this.session.id }, body: { ...ask, ...rest }, key, signal } as never);
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

  async #content(output: ToolOutput | undefined): Promise<Uint8Array> {
    if (output?.inline_text !== undefined) return new TextEncoder().encode(output.inline_text.text);
    if (output?.inline_bytes !== undefined) return output.inline_bytes.bytes;
    return output?.blob === undefined ? new Uint8Array() : this.session.stockade.blob(output.blob.blob_ref);
  }

  async #text(output: ToolOutput | undefined): Promise<string> {
    return new TextDecoder().decode(await this.#content(output));
  }
}

function split(lines: string): string[] {
  return lines === "" ? [] : lines.replace(/\n$/, "").split("\n");
}
