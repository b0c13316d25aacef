package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/stockade-dev/stockade/sandbox/file"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// files measures the file tools beside what a command, or a program that is not confined, does instead. All writes end on the disk.
func (b *bench) files() error {
	dir := filepath.Join(b.dir, "files")
	if err := os.MkdirAll(filepath.Join(dir, "p"), 0o755); err != nil {
		return err
	}
	source := filepath.Join(runtime.GOROOT(), "src")
	r, err := b.client.Open(b.ctx, api.SessionOpen{Profile: "workspace", Target: api.Target{Local: &api.Local{Workdir: "/work", Mounts: []api.Mount{
		{HostPath: dir, GuestPath: "/work", Mode: "rw"}, {HostPath: source, GuestPath: "/src/go", Mode: "ro"},
	}}}})
	if err := settled(r, err); err != nil {
		return err
	}
	session := r.SessionID
	defer b.close(session)

	line := "line of text\n"
	content := strings.Repeat(line, 16<<10/len(line))
	at := func(name string) file.Target { return file.Target{Path: name} }
	for _, name := range []string{"read", "cat"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	answered := func(r *api.Receipt, err error) error {
		if err := settled(r, err); err != nil {
			return err
		}
		if out := r.Payload.File.Outcome(); out.Status != file.OK {
			return fmt.Errorf("%s: %s %s", r.Op, out.Code, out.Message)
		}
		return nil
	}
	if err := b.compare([]contender{
		{name: "cat of 16 KiB, fork+exec", do: func() error { return exec.Command("cat", filepath.Join(dir, "cat")).Run() }},
		{name: "stockade read_file 16 KiB", baseline: "cat of 16 KiB, fork+exec", do: func() error {
			return answered(b.client.ReadFile(b.ctx, api.FileRead{SessionID: session, Read: file.Read{Target: at("read")}}))
		}},
		{name: "stockade exec cat of 16 KiB", baseline: "cat of 16 KiB, fork+exec", do: func() error {
			r, err := b.client.Exec(b.ctx, api.Exec{SessionID: session, Argv: []string{"cat", "read"}})
			return settled(r, err)
		}},
		{name: "write and fsync of 16 KiB", do: func() error { return synced(filepath.Join(dir, "plain"), content) }},
		{name: "stockade write_file 16 KiB", baseline: "write and fsync of 16 KiB", do: func() error {
			return answered(b.client.WriteFile(b.ctx, api.FileWrite{SessionID: session, Write: file.Write{Target: at("w"), Content: file.Content{InlineText: &file.InlineText{Text: content}}}}))
		}},
	}); err != nil {
		return err
	}

	// The rest takes long enough to be measured by fewer.
	few := *b
	few.n, few.figures = max(1, b.n/10), nil
	const files = 100
	patches := [2]strings.Builder{}
	for i := range patches {
		patches[i].WriteString("*** Begin Patch\n")
		for n := range files {
			fmt.Fprintf(&patches[i], "*** Update File: p/%d\n@@\n-state %d\n+state %d\n", n, i, 1-i)
		}
		patches[i].WriteString("*** End Patch\n")
	}
	for n := range files {
		if err := os.WriteFile(filepath.Join(dir, "p", fmt.Sprint(n)), []byte(content[:4<<10]+"\nstate 0\n"), 0o644); err != nil {
			return err
		}
	}
	turn := 0
	searches := func(name, pattern string, args ...string) []contender {
		baseline := "rg of the Go sources: " + name
		return []contender{
			{name: baseline, missing: lack("rg"), do: func() error {
				cmd := exec.Command("rg", append([]string{"--no-config", "--no-ignore", "--hidden", "--sort=path", "--no-heading", "--line-number", "--regexp=" + pattern}, args...)...)
				cmd.Dir = source
				out, err := cmd.Output()
				if err == nil && len(out) == 0 {
					err = fmt.Errorf("rg has found nothing")
				}
				return err
			}},
			{name: "stockade grep of the Go sources: " + name, baseline: baseline, do: func() error {
				return answered(b.client.Grep(b.ctx, api.FileGrep{SessionID: session, Grep: file.Grep{Target: at("/src/go"), Pattern: pattern}}))
			}},
		}
	}
	groups := [][]contender{
		{
			{name: "write and fsync of 100 files", do: func() error {
				for n := range files {
					if err := synced(filepath.Join(dir, fmt.Sprint("plain-", n)), content[:4<<10]); err != nil {
						return err
					}
				}
				return nil
			}},
			{name: "stockade apply_patch, 100 files", baseline: "write and fsync of 100 files", do: func() error {
				text := patches[turn%2].String()
				turn++
				return answered(b.client.ApplyPatch(b.ctx, api.FilePatch{SessionID: session, Patch: file.Patch{Patch: file.PatchText{InlineText: &file.InlineText{Text: text}}}}))
			}},
		},
		searches("a rare text", "ErrBadPattern"),
		searches("a class", `func \(\w+ \*?\w+\) Read\(`),
	}
	for _, group := range groups {
		if err := few.compare(group); err != nil {
			return err
		}
	}
	b.figures = append(b.figures, few.figures...)
	return nil
}

func synced(path, content string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteString(content); err != nil {
		return err
	}
	return f.Sync()
}
