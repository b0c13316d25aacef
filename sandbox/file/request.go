package file

// Request is one file operation as asked. Exactly one of the parameter members is set, the one
// that Op names.
type Request struct {
	Op     Op      `json:"op"`
	Read   *Read   `json:"read,omitzero"`
	Write  *Write  `json:"write,omitzero"`
	Edit   *Edit   `json:"edit,omitzero"`
	Patch  *Patch  `json:"patch,omitzero"`
	Grep   *Grep   `json:"grep,omitzero"`
	Glob   *Glob   `json:"glob,omitzero"`
	Stat   *Stat   `json:"stat,omitzero"` // host.fs.stat and host.fs.exists
	List   *List   `json:"list,omitzero"`
	Mkdir  *Mkdir  `json:"mkdir,omitzero"`
	Move   *Move   `json:"move,omitzero"`
	Remove *Remove `json:"remove,omitzero"`
}

// Target names a file. A relative path resolves under the session's working directory.
type Target struct {
	Path      string `json:"path,omitempty"`
	PathBytes []byte `json:"path_bytes,omitempty"` // the path where it is not UTF-8; path is then empty, or has U+FFFD for what is not
}

// Name is the path in its own bytes.
func (t Target) Name() string {
	if len(t.PathBytes) > 0 {
		return string(t.PathBytes)
	}
	return t.Path
}

// Read asks for a file, or a range of it (host.fs.read_file). Bytes and lines are two ways to
// say which; both together are refused.
type Read struct {
	Target
	OffsetBytes int64  `json:"offset_bytes,omitzero"`
	MaxBytes    *int64 `json:"max_bytes,omitzero"`  // absent: all, up to the ceilings
	StartLine   int64  `json:"start_line,omitzero"` // from 1; 0 does not count lines
	MaxLines    int64  `json:"max_lines,omitzero"`  // 0: all
	Encoding    string `json:"encoding,omitempty"`  // "utf8" (default) or "bytes"
	OutputMode  string `json:"output_mode,omitempty"`
}

// Write gives a file its content (host.fs.write_file).
type Write struct {
	Target
	Content        Content `json:"content"`
	CreateParents  bool    `json:"create_parents,omitzero"`
	Mode           string  `json:"mode,omitempty"`            // "overwrite" (default) or "create_new"
	ExpectedSHA256 string  `json:"expected_sha256,omitempty"` // of what is replaced, 64 hex digits; "absent" expects no file
	Executable     *bool   `json:"executable,omitzero"`       // set or take the executable bits; absent leaves them
}

// Content is what a file is to hold: a tagged variant.
type Content struct {
	InlineText  *InlineText  `json:"inline_text,omitzero"`
	InlineBytes *InlineBytes `json:"inline_bytes,omitzero"`
	BlobRef     *BlobRef     `json:"blob_ref,omitzero"`

	SecretText   *InlineText `json:"secret_text,omitzero"`    // reaches the file and no record; the answer has no digest of it
	SecretDigest string      `json:"secret_digest,omitempty"` // in its place, in records. Refused on input.
}

// InlineText is UTF-8 text in the document itself.
type InlineText struct {
	Text string `json:"text"`
}

// InlineBytes is bytes in the document itself, base64 on the wire.
type InlineBytes struct {
	Bytes []byte `json:"bytes"`
}

// BlobRef names a blob by content.
type BlobRef struct {
	BlobRef string `json:"blob_ref"` // sha256:<64 hex>
}

// Edit replaces text in a file (host.fs.edit_file).
type Edit struct {
	Target
	FilePath       string `json:"file_path,omitempty"` // alias of path (R199)
	OldString      string `json:"old_string"`
	NewString      string `json:"new_string"`
	ReplaceAll     bool   `json:"replace_all,omitzero"`
	ExactOnly      bool   `json:"exact_only,omitzero"` // without the fuzzy rules
	DryRun         bool   `json:"dry_run,omitzero"`
	ExpectedSHA256 string `json:"expected_sha256,omitempty"`
}

// Name is the path in its own bytes, by whichever member names it.
func (e *Edit) Name() string {
	if e.FilePath != "" {
		return e.FilePath
	}
	return e.Target.Name()
}

// Patch changes any number of files, all or none (host.fs.apply_patch).
type Patch struct {
	Patch  PatchText `json:"patch"`
	Format string    `json:"patch_format,omitempty"` // "v4a" (default) or "unified"
	DryRun bool      `json:"dry_run,omitzero"`
}

// PatchText is a patch: a tagged variant.
type PatchText struct {
	InlineText *InlineText `json:"inline_text,omitzero"`
	BlobRef    *BlobRef    `json:"blob_ref,omitzero"`
}

// Grep asks for the lines that a pattern matches (host.fs.grep). The semantics are one, whatever
// finds them: see internal/filetool/search.
type Grep struct {
	Target                 // file or directory; none is the working directory
	Pattern         string `json:"pattern"`
	GlobFilter      string `json:"glob_filter,omitempty"` // without a slash it means any depth; "!" before it excludes
	CaseInsensitive bool   `json:"case_insensitive,omitzero"`
	FixedStrings    bool   `json:"fixed_strings,omitzero"`
	Multiline       bool   `json:"multiline,omitzero"` // the pattern may match across lines, and . matches their ends
	Before          int64  `json:"before,omitzero"`    // lines of context
	After           int64  `json:"after,omitzero"`
	MaxResults      *int64 `json:"max_results,omitzero"`  // matching lines in the answer; absent is 100
	MaxPerFile      int64  `json:"max_per_file,omitzero"` // matching lines of one file that count; 0 is all
	RespectIgnore   bool   `json:"respect_ignore,omitzero"`
	OutputMode      string `json:"output_mode,omitempty"`
}

// Glob asks for the files whose paths a pattern matches (host.fs.glob), newest first.
type Glob struct {
	Target
	Pattern         string `json:"pattern"`
	CaseInsensitive bool   `json:"case_insensitive,omitzero"`
	MaxResults      *int64 `json:"max_results,omitzero"` // absent is 100
	RespectIgnore   bool   `json:"respect_ignore,omitzero"`
	OutputMode      string `json:"output_mode,omitempty"`
}

// Stat asks what is at a path (host.fs.stat), or only whether there is anything (host.fs.exists).
type Stat struct {
	Target
	Link bool `json:"link,omitzero"` // of a symbolic link at the path, the link itself
}

// List asks for the names in a directory (host.fs.list_dir).
type List struct {
	Target
	MaxResults *int64 `json:"max_results,omitzero"` // absent is 100
	OutputMode string `json:"output_mode,omitempty"`
}

// Mkdir makes a directory (host.fs.mkdir).
type Mkdir struct {
	Target
	CreateParents bool `json:"create_parents,omitzero"` // and a directory that is there already is no conflict
}

// Move renames a file, a directory or a link (host.fs.move).
type Move struct {
	Target
	To        string `json:"to,omitempty"`
	ToBytes   []byte `json:"to_bytes,omitempty"`
	Overwrite bool   `json:"overwrite,omitzero"` // a file that is there is replaced; never a directory
}

// Destination is the new path in its own bytes.
func (m *Move) Destination() string {
	if len(m.ToBytes) > 0 {
		return string(m.ToBytes)
	}
	return m.To
}

// Remove removes a file, a link or a directory (host.fs.remove).
type Remove struct {
	Target
	Recursive bool `json:"recursive,omitzero"` // what is in a directory too
}

// Blobs are the contents that the request names instead of having them in it.
func (r *Request) Blobs() []string {
	switch {
	case r.Write != nil && r.Write.Content.BlobRef != nil:
		return []string{r.Write.Content.BlobRef.BlobRef}
	case r.Patch != nil && r.Patch.Patch.BlobRef != nil:
		return []string{r.Patch.Patch.BlobRef.BlobRef}
	}
	return nil
}

// Bytes is the size of what is to be written, or of a patch, where that stands in the request.
func (r *Request) Bytes() int64 {
	switch {
	case r.Write != nil && r.Write.Content.InlineText != nil:
		return int64(len(r.Write.Content.InlineText.Text))
	case r.Write != nil && r.Write.Content.InlineBytes != nil:
		return int64(len(r.Write.Content.InlineBytes.Bytes))
	case r.Write != nil && r.Write.Content.SecretText != nil:
		return int64(len(r.Write.Content.SecretText.Text))
	case r.Patch != nil && r.Patch.Patch.InlineText != nil:
		return int64(len(r.Patch.Patch.InlineText.Text))
	}
	return 0
}
