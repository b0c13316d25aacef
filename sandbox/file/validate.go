package file

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of a well-formed request.
const (
	MaxPath    = 4095    // PATH_MAX without the NUL
	MaxPattern = 1 << 16 // bytes of a regular expression or a glob
	MaxContext = 1000    // lines around a match
)

// Defaults of requests (table 3.4).
const (
	DefaultResults = 100
	InlineLimit    = 16384
	PreviewLimit   = 512
)

var (
	blobRef = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	digest  = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// Fault is why a request cannot be meant.
type Fault struct {
	Status  Status
	Code    Code
	Message string
}

func (f *Fault) Error() string { return fmt.Sprintf("%s: %s", f.Code, f.Message) }

// check is one rule; fault returns what is wrong, or "".
type check struct {
	status Status
	code   Code
	fault  func(*Request) string
}

// Validate reports the first thing that makes the request not well formed. It asks nothing of the
// machine or of capabilities.
func (r *Request) Validate() *Fault {
	if err := r.arms(); err != "" {
		return &Fault{Error, CodeInvalidParams, err}
	}
	for _, c := range checks[r.Op] {
		if msg := c.fault(r); msg != "" {
			return &Fault{c.status, c.code, msg}
		}
	}
	return nil
}

func (r *Request) arms() string {
	arms := []struct {
		set bool
		ops []Op
	}{
		{r.Read != nil, []Op{OpRead}}, {r.Write != nil, []Op{OpWrite}}, {r.Edit != nil, []Op{OpEdit}},
		{r.Patch != nil, []Op{OpPatch}}, {r.Grep != nil, []Op{OpGrep}}, {r.Glob != nil, []Op{OpGlob}},
		{r.Stat != nil, []Op{OpStat, OpExists}}, {r.List != nil, []Op{OpList}}, {r.Mkdir != nil, []Op{OpMkdir}},
		{r.Move != nil, []Op{OpMove}}, {r.Remove != nil, []Op{OpRemove}},
	}
	if r.Op.Class() == "" {
		return fmt.Sprintf("%.100q is no file operation", string(r.Op))
	}
	for _, a := range arms {
		if a.set != slices.Contains(a.ops, r.Op) {
			return "the parameters are not those of " + string(r.Op)
		}
	}
	return ""
}

var checks = map[Op][]check{
	OpRead: {
		{Error, CodeInvalidPath, func(r *Request) string { return pathFault(r.Read.Target, true) }},
		{Error, CodeInvalidEncoding, func(r *Request) string { return unlisted("encoding", r.Read.Encoding, "", "utf8", "bytes") }},
		{Error, CodeInvalidOutputMode, func(r *Request) string { return modeFault(r.Read.OutputMode) }},
		{Error, CodeInvalidParams, func(r *Request) string { return negative("offset_bytes", r.Read.OffsetBytes) }},
		{Error, CodeInvalidParams, func(r *Request) string { return negativeP("max_bytes", r.Read.MaxBytes) }},
		{Error, CodeInvalidParams, func(r *Request) string { return negative("start_line", r.Read.StartLine) }},
		{Error, CodeInvalidParams, func(r *Request) string { return negative("max_lines", r.Read.MaxLines) }},
		{Error, CodeInvalidParams, func(r *Request) string {
			if r.Read.OffsetBytes != 0 && (r.Read.StartLine != 0 || r.Read.MaxLines != 0) {
				return "offset_bytes and lines contradict each other"
			}
			return ""
		}},
	},
	OpWrite: {
		{Error, CodeInvalidPath, func(r *Request) string { return pathFault(r.Write.Target, true) }},
		{Error, CodeInvalidContent, func(r *Request) string {
			c := r.Write.Content
			if n := count(c.InlineText != nil, c.InlineBytes != nil, c.BlobRef != nil, c.SecretText != nil); n != 1 {
				return fmt.Sprintf("content has %d of inline_text, inline_bytes, blob_ref and secret_text", n)
			}
			for _, t := range []*InlineText{c.InlineText, c.SecretText} {
				if t != nil && !utf8.ValidString(t.Text) {
					return "the text is not UTF-8"
				}
			}
			if c.SecretDigest != "" {
				return "secret_digest is for records, not for requests"
			}
			return ""
		}},
		{Error, CodeInvalidBlobRef, func(r *Request) string { return blobFault(r.Write.Content.BlobRef) }},
		{Error, CodeInvalidMode, func(r *Request) string { return unlisted("mode", r.Write.Mode, "", "overwrite", "create_new") }},
		{Error, CodeInvalidParams, func(r *Request) string { return digestFault(r.Write.ExpectedSHA256, true) }},
	},
	OpEdit: {
		{Error, CodeEmptyOldString, func(r *Request) string {
			if r.Edit.OldString == "" {
				return "old_string is empty"
			}
			return ""
		}},
		{Error, CodeInvalidPath, func(r *Request) string {
			if r.Edit.FilePath != "" && r.Edit.Target.Name() != "" && r.Edit.FilePath != r.Edit.Target.Name() {
				return "path and file_path name two files"
			}
			return pathFault(Target{Path: r.Edit.Name()}, true)
		}},
		{Error, CodeInvalidUTF8, func(r *Request) string {
			if !utf8.ValidString(r.Edit.OldString) || !utf8.ValidString(r.Edit.NewString) {
				return "old_string or new_string is not UTF-8"
			}
			return ""
		}},
		{Error, CodeInvalidParams, func(r *Request) string { return digestFault(r.Edit.ExpectedSHA256, false) }},
	},
	OpPatch: {
		{Error, CodePatchFormat, func(r *Request) string { return unlisted("patch_format", r.Patch.Format, "", "v4a", "unified") }},
		{Error, CodeInvalidPatch, func(r *Request) string {
			if n := count(r.Patch.Patch.InlineText != nil, r.Patch.Patch.BlobRef != nil); n != 1 {
				return fmt.Sprintf("patch has %d of inline_text and blob_ref", n)
			}
			return ""
		}},
		{Error, CodePatchEmpty, func(r *Request) string {
			if t := r.Patch.Patch.InlineText; t != nil && strings.TrimSpace(t.Text) == "" {
				return "the patch is empty"
			}
			return ""
		}},
		{Error, CodeInvalidBlobRef, func(r *Request) string { return blobFault(r.Patch.Patch.BlobRef) }},
	},
	OpGrep: {
		{Error, CodeInvalidPath, func(r *Request) string { return pathFault(r.Grep.Target, false) }},
		{InvalidRegex, CodeInvalidRegex, func(r *Request) string { return patternFault(r.Grep.Pattern) }},
		{Error, CodeInvalidGlobFilter, func(r *Request) string {
			if r.Grep.GlobFilter == "" {
				return ""
			}
			return patternFault(r.Grep.GlobFilter)
		}},
		{Error, CodeInvalidOutputMode, func(r *Request) string { return modeFault(r.Grep.OutputMode) }},
		{Error, CodeInvalidParams, func(r *Request) string { return negativeP("max_results", r.Grep.MaxResults) }},
		{Error, CodeInvalidParams, func(r *Request) string { return negative("max_per_file", r.Grep.MaxPerFile) }},
		{Error, CodeInvalidParams, func(r *Request) string {
			if min(r.Grep.Before, r.Grep.After) < 0 || max(r.Grep.Before, r.Grep.After) > MaxContext {
				return fmt.Sprintf("before and after are numbers from 0 to %d", MaxContext)
			}
			return ""
		}},
	},
	OpGlob: {
		{Error, CodeInvalidPath, func(r *Request) string { return pathFault(r.Glob.Target, false) }},
		{InvalidPattern, CodeInvalidPattern, func(r *Request) string { return patternFault(r.Glob.Pattern) }},
		{Error, CodeInvalidOutputMode, func(r *Request) string { return modeFault(r.Glob.OutputMode) }},
		{Error, CodeInvalidParams, func(r *Request) string { return negativeP("max_results", r.Glob.MaxResults) }},
	},
	OpStat:   {{Error, CodeInvalidPath, func(r *Request) string { return pathFault(r.Stat.Target, true) }}},
	OpExists: {{Error, CodeInvalidPath, func(r *Request) string { return pathFault(r.Stat.Target, true) }}},
	OpList: {
		{Error, CodeInvalidPath, func(r *Request) string { return pathFault(r.List.Target, false) }},
		{Error, CodeInvalidOutputMode, func(r *Request) string { return modeFault(r.List.OutputMode) }},
		{Error, CodeInvalidParams, func(r *Request) string { return negativeP("max_results", r.List.MaxResults) }},
	},
	OpMkdir: {{Error, CodeInvalidPath, func(r *Request) string { return pathFault(r.Mkdir.Target, true) }}},
	OpMove: {
		{Error, CodeInvalidPath, func(r *Request) string { return pathFault(r.Move.Target, true) }},
		{Error, CodeInvalidPath, func(r *Request) string { return pathFault(Target{Path: r.Move.Destination()}, true) }},
	},
	OpRemove: {{Error, CodeInvalidPath, func(r *Request) string { return pathFault(r.Remove.Target, true) }}},
}

func pathFault(t Target, required bool) string {
	if t.Path != "" && len(t.PathBytes) > 0 && t.Path != strings.ToValidUTF8(string(t.PathBytes), "\uFFFD") && t.Path != string(t.PathBytes) {
		return "path and path_bytes name two files"
	}
	return NameFault(t.Name(), required)
}

// NameFault says why a path can name no file; "" when it can.
func NameFault(name string, required bool) string {
	switch {
	case name == "" && required:
		return "the path is empty"
	case len(name) > MaxPath:
		return fmt.Sprintf("the path has %d bytes, more than %d", len(name), MaxPath)
	case strings.Contains(name, "\x00"):
		return "the path has a NUL"
	}
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > 255 {
			return fmt.Sprintf("a component of the path has %d bytes, more than 255", len(part))
		}
	}
	return ""
}

func patternFault(p string) string {
	switch {
	case p == "":
		return "the pattern is empty"
	case len(p) > MaxPattern:
		return fmt.Sprintf("the pattern has %d bytes, more than %d", len(p), MaxPattern)
	case !utf8.ValidString(p):
		return "the pattern is not UTF-8"
	case strings.Contains(p, "\x00"):
		return "the pattern has a NUL"
	}
	return ""
}

func modeFault(mode string) string {
	return unlisted("output_mode", mode, "", "auto", "require_inline")
}

func unlisted(name, value string, known ...string) string {
	if slices.Contains(known, value) {
		return ""
	}
	return fmt.Sprintf("%s: %.100q is unknown", name, value)
}

func negative(name string, n int64) string {
	if n < 0 {
		return name + " is negative"
	}
	return ""
}

func negativeP(name string, n *int64) string {
	if n == nil {
		return ""
	}
	return negative(name, *n)
}

func blobFault(b *BlobRef) string {
	if b != nil && !blobRef.MatchString(b.BlobRef) {
		return "blob_ref is not sha256:<64 hex digits>"
	}
	return ""
}

func digestFault(s string, absent bool) string {
	if s == "" || absent && s == "absent" || digest.MatchString(s) {
		return ""
	}
	return "expected_sha256 is not 64 hex digits"
}

func count(set ...bool) (n int) {
	for _, s := range set {
		if s {
			n++
		}
	}
	return n
}
