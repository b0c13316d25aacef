package file

// Status is how an operation went. All but error are answers to what was asked.
type Status string

// The statuses.
const (
	OK             Status = "ok"
	NotFound       Status = "not_found"
	IsDirectory    Status = "is_directory"
	Forbidden      Status = "forbidden"
	Conflict       Status = "conflict"
	Ambiguous      Status = "ambiguous"
	ParseError     Status = "parse_error"
	Reject         Status = "reject"
	InvalidRegex   Status = "invalid_regex"
	InvalidPattern Status = "invalid_pattern"
	Error          Status = "error"
)

// Code is a stable, machine-readable reason.
type Code string

// The codes.
const (
	CodeInvalidParams     Code = "invalid_params"
	CodeInvalidPath       Code = "invalid_path"
	CodeInvalidMode       Code = "invalid_mode"
	CodeInvalidEncoding   Code = "invalid_encoding"
	CodeInvalidContent    Code = "invalid_content"
	CodeInvalidOutputMode Code = "invalid_output_mode"
	CodeInvalidBlobRef    Code = "invalid_blob_ref"
	CodeInvalidUTF8       Code = "invalid_utf8"

	CodeForbidden     Code = "forbidden"      // by the file system: EACCES, EPERM, EROFS
	CodePathForbidden Code = "path_forbidden" // of a patch
	CodePathNotFound  Code = "path_not_found"
	CodeParentMissing Code = "parent_not_found"
	CodeNotDirectory  Code = "not_directory"
	CodeIsDirectory   Code = "is_directory"
	CodeNotRegular    Code = "not_regular"
	CodeFileExists    Code = "file_exists"
	CodeNotEmpty      Code = "directory_not_empty"
	CodeHashMismatch  Code = "sha256_mismatch"
	CodeChanged       Code = "changed_meanwhile"
	CodeProtected     Code = "protected_path"
	CodeReadFailed    Code = "read_failed"
	CodeWriteFailed   Code = "write_failed"
	CodeDeleteFailed  Code = "delete_failed"
	CodeNoSpace       Code = "no_space"
	CodeReadOnly      Code = "read_only"
	CodeNotKept       Code = "attributes_not_kept" // owner or attributes of the file could not be given to its successor
	CodeIOError       Code = "io_error"
	CodeCrossDevice   Code = "cross_device"
	CodeTooLarge      Code = "file_too_large" // for a tool that needs the whole of it
	CodeCanceled      Code = "canceled"

	CodeEmptyOldString Code = "invalid_input_empty_old_string"
	CodeEditNotFound   Code = "edit_target_not_found"
	CodeAmbiguous      Code = "ambiguous_matches"

	CodePatchFormat    Code = "unsupported_patch_format"
	CodeInvalidPatch   Code = "invalid_patch"
	CodePatchEmpty     Code = "invalid_patch_empty"
	CodePatchParse     Code = "patch_parse_error"
	CodeAddExists      Code = "add_target_exists"
	CodeDeleteNotFound Code = "delete_target_not_found"
	CodeUpdateNotFound Code = "update_target_not_found"
	CodeUpdateNotUTF8  Code = "update_target_non_utf8"
	CodeHunkRejected   Code = "hunk_rejected"
	CodeMoveExists     Code = "move_target_exists"

	CodeInvalidRegex      Code = "invalid_regex"
	CodeInvalidGlobFilter Code = "invalid_glob_filter"
	CodeInvalidPattern    Code = "invalid_pattern"
	CodeGrepFailed        Code = "grep_failed"
	CodeGlobFailed        Code = "glob_failed"
	CodeStatFailed        Code = "stat_failed"
	CodeListFailed        Code = "list_failed"
	CodeScanFiles         Code = "max_scan_files_exceeded"
	CodeScanBytes         Code = "max_scan_bytes_exceeded"

	CodeInlineTooLarge Code = "inline_required_too_large"
	CodeStoreFailed    Code = "output_store_failed"

	// Of the capabilities: the ask is refused as it is.
	CodeOpNotAllowed     Code = "fs_op_not_allowed"
	CodePathNotAllowed   Code = "path_not_allowed"
	CodeLinkNotAllowed   Code = "symlink_not_allowed"
	CodeFormatNotAllowed Code = "patch_format_not_allowed"
	CodeOutputNotAllowed Code = "output_mode_not_allowed"
	CodeWriteBytes       Code = "max_write_bytes_exceeded"
	CodePatchBytes       Code = "max_patch_bytes_exceeded"
	CodeChangedFiles     Code = "max_changed_files_exceeded"
	CodeReplacements     Code = "max_edit_replacements_exceeded"
	CodeInvalidFollow    Code = "invalid_follow_symlinks"
)
