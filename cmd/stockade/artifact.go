package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// artifact is a file to be brought out of a session, and where to.
type artifact struct {
	path string // inside
	dest string // here
}

// artifacts reads PATH[:DEST].
func artifacts(list []string, dir string) ([]artifact, error) {
	var out []artifact
	taken := map[string]bool{}
	for _, s := range list {
		inside, dest, given := strings.Cut(s, ":")
		if inside == "" || given && dest == "" {
			return nil, usage("--output %q: want PATH[:DEST]", s)
		}
		if !given {
			dest = filepath.Join(dir, path.Base(inside))
		}
		if taken[dest] {
			return nil, usage("--output %q: %s is written twice", s, dest)
		}
		taken[dest] = true
		out = append(out, artifact{inside, dest})
	}
	return out, nil
}

// fetch writes the artifacts of a receipt where the caller wants them. One that is
// missing is an error, and the others are written all the same.
func (c *cli) fetch(ctx context.Context, wanted []artifact, r *api.Receipt) error {
	if r.Payload.Exec == nil {
		return nil
	}
	var all error
	for i, a := range r.Payload.Exec.Outputs {
		if a.ErrorCode != "" || i >= len(wanted) {
			all = errors.Join(all, fmt.Errorf("output %s: %s", a.Path, a.ErrorCode))
			continue
		}
		if err := c.save(ctx, a, wanted[i].dest); err != nil {
			all = errors.Join(all, fmt.Errorf("output %s: %w", a.Path, err))
			continue
		}
		c.say("output %s  %s  %s  %s", a.Path, a.BlobRef, amount(a.SizeBytes), wanted[i].dest)
	}
	return all
}

// save writes one blob beside its destination and renames it, so that a half file never
// has the name of a whole one. Of the mode only the permission to execute is taken over:
// what was made inside must not choose who may read or write out here.
func (c *cli) save(ctx context.Context, a api.Artifact, dest string) (err error) {
	if err := os.MkdirAll(filepath.Dir(dest), 0o777); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(dest), ".stockade-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	defer f.Close()
	if err := c.copyBlob(ctx, a.BlobRef, f); err != nil {
		return err
	}
	if err := f.Chmod(mode(a.Mode)); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), dest)
}

func mode(inside uint32) os.FileMode {
	if inside&0o111 != 0 {
		return 0o755
	}
	return 0o644
}

// differences names the outputs that two runs of the same command gave differently.
func differences(first, second []api.Artifact) []string {
	refs := map[string]string{}
	for _, a := range first {
		refs[a.Path] = a.BlobRef
	}
	var out []string
	for _, a := range second {
		if refs[a.Path] != a.BlobRef {
			out = append(out, fmt.Sprintf("%s  %s  %s", a.Path, refs[a.Path], a.BlobRef))
		}
	}
	return out
}
