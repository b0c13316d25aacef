package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/sandbox/file"
	"github.com/stockade-dev/stockade/supervisor/api"
)

func (c *cli) cpCommand() *cobra.Command {
	k := &copying{cli: c}
	cmd := &cobra.Command{
		Use:   "cp [flags] SOURCE TARGET",
		Short: "Copy files into a session, or out of it",
		Long: `cp copies with the file tools of a session: inside, as the session's identity, on its mounts and within
its grant; each file leaves a receipt. One of the two is SESSION:PATH, the other a path of ours, or - for
a tar stream: on stdin in, whose entries go below PATH; on stdout out.

A directory is copied with all that is below it. What TARGET names and is a directory takes SOURCE
under its own name. Executable files stay so; owners, times and other bits are those of whoever writes.
What is no file and no directory is left out, told, and ends cp with 1: links of ours, and inside
what leads to no file.`,
		Example: `  stockade cp src "$id":/repo/
  stockade cp "$id":/repo/out ./out
  git archive HEAD | stockade cp - "$id":/repo
  stockade cp "$id":/repo - | tar -tv`,
		Args: arguments(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error { return k.run(cmd.Context(), args[0], args[1]) },
	}
	cmd.Flags().Var(&k.flag, "progress", "tell on stderr how it comes along (default: on a terminal, when stdout goes elsewhere)")
	cmd.Flags().Lookup("progress").NoOptDefVal = "true"
	return cmd
}

// copying is one cp.
type copying struct {
	*cli
	flag    progressFlag
	session string
	told    time.Time // of progress
	under   int64     // bytes of the file that is under way
	sum     copied
}

// copied is what cp did.
type copied struct {
	Files       int64     `json:"files"`
	Directories int64     `json:"directories"`
	Bytes       int64     `json:"bytes"`
	Skipped     []skipped `json:"skipped,omitempty"`
}

type skipped struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// inside takes SESSION:PATH apart. A path of ours that looks like it is written with a slash before: ./a:b.
func inside(arg string) (session, at string, ok bool) {
	session, at, ok = strings.Cut(arg, ":")
	return session, at, ok && session != "" && !strings.Contains(session, "/")
}

func (k *copying) run(ctx context.Context, source, dest string) (err error) {
	from, fromAt, out := inside(source)
	to, toAt, in := inside(dest)
	if in == out {
		return usage("one of SOURCE and TARGET is SESSION:PATH")
	}
	if out {
		if k.session, err = k.sessionID(ctx, from); err == nil {
			err = k.out(ctx, fromAt, dest)
		}
	} else if k.session, err = k.sessionID(ctx, to); err == nil {
		err = k.in(ctx, source, toAt)
	}
	if err != nil {
		return err
	}
	if k.wanted(k.flag) {
		k.tell()
	}
	if k.json && dest != "-" {
		if err := document(k.stdout, k.sum); err != nil {
			return err
		}
	}
	if len(k.sum.Skipped) > 0 {
		return &exitError{exitFinding, nil}
	}
	return nil
}

// ask uses one tool. What it says no to is an error, but for what is not there.
func (k *copying) ask(ctx context.Context, op api.Op, body any) (*file.Result, error) {
	p, r, err := k.client().Ask(ctx, op, body)
	if r, err = k.leave(ctx, false, p, r, err); err != nil {
		return nil, err
	}
	res := r.Payload.File
	if r.Outcome == api.OutcomeFaulted && res != nil && res.Outcome() != nil && res.Outcome().Code == file.CodeNotRegular {
		return res, nil
	}
	if err := k.settled(r); err != nil {
		return nil, err
	}
	if res == nil || res.Outcome() == nil {
		return nil, errors.New("the receipt has no result")
	}
	switch res.Outcome().Status {
	case file.OK, file.NotFound, file.IsDirectory:
		return res, nil
	case file.Forbidden:
		return nil, &exitError{exitDenied, errors.New(refusal(r.Op, res))}
	}
	return nil, &exitError{exitFinding, errors.New(refusal(r.Op, res))}
}

func (k *copying) skip(at, why string) {
	k.sum.Skipped = append(k.sum.Skipped, skipped{at, why})
	k.say("left out: %s: %s", printable(at), why)
}

// copied counts a file that has come to its end.
func (k *copying) copied(bytes int64) {
	k.sum.Files++
	k.sum.Bytes += bytes
	k.under = 0
	k.passed(0)
}

// passed counts bytes of the file that is under way, and tells of it now and then.
func (k *copying) passed(n int) {
	k.under += int64(n)
	if now := time.Now(); k.wanted(k.flag) && now.Sub(k.told) > time.Second {
		k.told = now
		k.tell()
	}
}

func (k *copying) tell() {
	noun := "files"
	if k.sum.Files == 1 {
		noun = "file"
	}
	k.say("%d %s, %s", k.sum.Files, noun, amount(k.sum.Bytes+k.under))
}

// passing counts what comes from a reader or goes to a writer.
type passing struct {
	k *copying
	r io.Reader
	w io.Writer
}

func (p *passing) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.k.passed(n)
	return n, err
}

func (p *passing) Write(b []byte) (int, error) {
	n, err := p.w.Write(b)
	p.k.passed(n)
	return n, err
}

// kind is what is at a path inside: dir, file, "" for nothing.
func (k *copying) kind(ctx context.Context, at string) (*file.StatResult, error) {
	res, err := k.ask(ctx, api.OpFileStat, api.FileStat{SessionID: k.session, Stat: file.Stat{Target: target(at)}})
	if err != nil || res.Stat == nil {
		return nil, err
	}
	return res.Stat, nil
}

// in copies into the session.
func (k *copying) in(ctx context.Context, source, at string) error {
	if at == "" {
		at = "."
	}
	if source == "-" {
		return k.unpack(ctx, at)
	}
	info, err := os.Lstat(source)
	if err != nil {
		return usage("%v", err)
	}
	there, err := k.kind(ctx, at)
	if err != nil {
		return err
	}
	if there.Kind == "dir" || strings.HasSuffix(at, "/") {
		full, err := filepath.Abs(source)
		if err != nil {
			return err
		}
		at = path.Join(at, filepath.Base(full))
	}
	if !info.IsDir() {
		return k.put(ctx, source, at, info)
	}
	return filepath.WalkDir(source, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(source, name)
		if err != nil {
			return err
		}
		if e.IsDir() {
			return k.mkdir(ctx, path.Join(at, filepath.ToSlash(rel)))
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		return k.put(ctx, name, path.Join(at, filepath.ToSlash(rel)), info)
	})
}

func (k *copying) mkdir(ctx context.Context, at string) error {
	_, err := k.ask(ctx, api.OpFileMkdir, api.FileMkdir{SessionID: k.session, Mkdir: file.Mkdir{Target: target(at), CreateParents: true}})
	if err == nil {
		k.sum.Directories++
	}
	return err
}

func (k *copying) put(ctx context.Context, name, at string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		k.skip(name, "it is no file and no directory")
		return nil
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return k.write(ctx, at, f, info.Mode()&0o111 != 0)
}

// write gives a file inside its content.
func (k *copying) write(ctx context.Context, at string, from io.Reader, executable bool) error {
	from = &passing{k: k, r: from}
	head, err := io.ReadAll(io.LimitReader(from, inlineFile+1))
	if err != nil {
		return err
	}
	ask := api.FileWrite{SessionID: k.session, Write: file.Write{Target: target(at), CreateParents: true, Executable: &executable}}
	switch {
	case len(head) > inlineFile:
		ref, err := k.cli.put(ctx, head, from)
		if err != nil {
			return err
		}
		ask.Content.BlobRef = &file.BlobRef{BlobRef: ref}
	case utf8.Valid(head):
		ask.Content.InlineText = &file.InlineText{Text: string(head)}
	default:
		ask.Content.InlineBytes = &file.InlineBytes{Bytes: head}
	}
	res, err := k.ask(ctx, api.OpFileWrite, ask)
	if err != nil {
		return err
	}
	if res.Write == nil || res.Write.WrittenBytes == nil {
		return &exitError{exitFinding, errors.New(refusal(api.OpFileWrite, res))}
	}
	k.copied(*res.Write.WrittenBytes)
	return nil
}

// unpack copies what a tar stream has.
func (k *copying) unpack(ctx context.Context, at string) error {
	for t := tar.NewReader(k.stdin); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return usage("stdin: %v", err)
		}
		name := path.Clean(h.Name)
		if !fs.ValidPath(name) {
			return usage("stdin: %s leads out of the target", printable(h.Name))
		}
		switch h.Typeflag {
		case tar.TypeDir:
			err = k.mkdir(ctx, path.Join(at, name))
		case tar.TypeReg:
			err = k.write(ctx, path.Join(at, name), t, h.Mode&0o111 != 0)
		case tar.TypeXGlobalHeader: // git archive's: it is no entry
		default:
			k.skip(h.Name, "it is no file and no directory")
		}
		if err != nil {
			return err
		}
	}
}

// sink takes what is copied out.
type sink interface {
	dir(name string) error
	file(name string, executable bool, size int64, content func(io.Writer) error) error
	close() error
}

// out copies out of the session.
func (k *copying) out(ctx context.Context, at, dest string) (err error) {
	there, err := k.kind(ctx, at)
	if err != nil {
		return err
	}
	if there.Kind == "" {
		return &exitError{exitFinding, fmt.Errorf("%s: there is nothing", printable(at))}
	}
	var to sink
	name := path.Base(there.Path)
	if dest == "-" {
		to = &packer{tar.NewWriter(k.stdout)}
		if there.Kind == "dir" {
			name = "."
		}
	} else {
		if info, err := os.Stat(dest); err == nil && info.IsDir() {
			if there.Path == "/" {
				name = "."
			}
		} else if strings.HasSuffix(dest, "/") {
			return usage("%s is no directory", dest)
		} else {
			dest, name = filepath.Dir(dest), filepath.Base(dest)
		}
		root, err := os.OpenRoot(dest)
		if err != nil {
			return usage("%v", err)
		}
		to = &unpacker{root}
	}
	defer func() { err = errors.Join(err, to.close()) }()
	if there.Kind == "dir" {
		return k.tree(ctx, at, name, to)
	}
	return k.get(ctx, at, name, to)
}

// tree copies a directory. Names come from inside: the sink keeps them below the target, whatever they are.
func (k *copying) tree(ctx context.Context, at, name string, to sink) error {
	if err := to.dir(name); err != nil {
		return err
	}
	k.sum.Directories++
	all := int64(1 << 30)
	res, err := k.ask(ctx, api.OpFileList, api.FileList{SessionID: k.session, List: file.List{Target: target(at), MaxResults: &all}})
	if err != nil {
		return err
	}
	if res.List == nil || res.List.Status != file.OK {
		k.skip(at, "it is no directory any more")
		return nil
	}
	var text strings.Builder
	if err := k.outputTo(ctx, res.List.Entries, &text); err != nil {
		return err
	}
	if res.List.Truncated {
		k.skip(at, fmt.Sprintf("the grant lists fewer names than its %d", *res.List.Count))
	}
	for line := range strings.Lines(text.String()) {
		entry, below := strings.CutSuffix(strings.TrimSuffix(line, "\n"), "/")
		base, ok := file.Unquote(entry)
		if !ok || !fs.ValidPath(base) || strings.Contains(base, "/") || base == "." {
			return fmt.Errorf("%s lists %q", at, entry)
		}
		if below {
			err = k.tree(ctx, path.Join(at, base), path.Join(name, base), to)
		} else {
			err = k.get(ctx, path.Join(at, base), path.Join(name, base), to)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// get copies a file, in as many pieces as the grant makes of it.
func (k *copying) get(ctx context.Context, at, name string, to sink) error {
	read := func(offset int64) (*file.ReadResult, error) {
		res, err := k.ask(ctx, api.OpFileRead, api.FileRead{SessionID: k.session, Read: file.Read{Target: target(at), OffsetBytes: offset, Encoding: "bytes"}})
		if err != nil || res.Read == nil {
			return nil, err
		}
		return res.Read, nil
	}
	first, err := read(0)
	if err != nil {
		return err
	}
	if first.Status != file.OK || first.SizeBytes == nil {
		k.skip(at, strings.TrimSpace(string(first.Code)+" it is no file"))
		return nil
	}
	size := *first.SizeBytes
	err = to.file(name, first.Mode&0o111 != 0, size, func(w io.Writer) error {
		for part := first; ; {
			if err := k.outputTo(ctx, part.Content, &passing{k: k, w: w}); err != nil || !part.Truncated {
				return err
			}
			before := part
			if part, err = read(part.NextOffset); err != nil {
				return err
			}
			if part.Status != file.OK || part.MtimeNS != before.MtimeNS || part.NextOffset == before.NextOffset {
				return fmt.Errorf("%s changes while it is copied", printable(at))
			}
		}
	})
	if err == nil {
		k.copied(size)
	}
	return err
}

// unpacker writes below a directory of ours.
type unpacker struct{ root *os.Root }

func (u *unpacker) dir(name string) error { return u.root.MkdirAll(name, 0o777) }

func (u *unpacker) file(name string, executable bool, size int64, content func(io.Writer) error) error {
	mode := fs.FileMode(0o666)
	if executable {
		mode = 0o777
	}
	// Somebody else's link or program is not written through: the file is a new one.
	if err := u.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	n := &counting{Writer: f}
	return errors.Join(n.exactly(content, name, size), f.Close())
}

func (u *unpacker) close() error { return u.root.Close() }

// packer writes a tar stream.
type packer struct{ *tar.Writer }

func (p *packer) dir(name string) error {
	return p.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755})
}

func (p *packer) file(name string, executable bool, size int64, content func(io.Writer) error) error {
	mode := int64(0o644)
	if executable {
		mode = 0o755
	}
	if err := p.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: size}); err != nil {
		return err
	}
	n := &counting{Writer: p.Writer}
	return n.exactly(content, name, size)
}

func (p *packer) close() error { return p.Writer.Close() }

type counting struct {
	io.Writer
	n int64
}

func (c *counting) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	c.n += int64(n)
	return n, err
}

// exactly has content written, which is as long as was said before.
func (c *counting) exactly(content func(io.Writer) error, name string, size int64) error {
	if err := content(c); err != nil {
		return err
	}
	if c.n != size {
		return fmt.Errorf("%s has changed while it was copied: %d bytes, not %d", printable(name), c.n, size)
	}
	return nil
}
