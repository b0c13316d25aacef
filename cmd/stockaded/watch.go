package main

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// When something has changed, it is looked at once nothing has for a while; and after some time in any case.
const (
	quietFor   = 300 * time.Millisecond
	lookAtLast = 5 * time.Second
)

// watch calls changed when what is at path may have become another: a file, what is in a directory and below, where a
// symbolic link leads. It returns when ctx ends. A path that is not there yet is waited for.
func watch(ctx context.Context, path string, log *slog.Logger, changed func()) error {
	eye, err := openEye(path)
	if err != nil {
		return err
	}
	for {
		err := eye.sees(ctx)
		if err != nil {
			eye.Close()
			return nil // ctx has ended
		}
		// Another one before it is read: what changes from here on is seen by that. It is made anew because directories may be
		// other ones by the same names.
		next, err := openEye(path)
		if err != nil {
			log.Warn("the policy cannot be watched as it is now", "error", err)
			next = eye
		} else {
			eye.Close()
		}
		eye = next
		changed()
	}
}

// eye watches what is at a path as it was when it was opened.
type eye struct {
	*fsnotify.Watcher
	named map[string]bool // in directories that are watched because of one name only
	tree  []string        // directories that are watched because of everything
}

func openEye(path string) (*eye, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", path, err)
	}
	e := &eye{Watcher: w, named: map[string]bool{}}
	names := []string{path}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		names = append(names, real)
		if info, err := os.Stat(real); err == nil && info.IsDir() {
			e.tree = append(e.tree, real)
		}
	}
	for _, name := range names {
		e.named[name] = true
		if err == nil {
			err = w.Add(filepath.Dir(name))
		}
	}
	for _, top := range e.tree {
		if err == nil {
			err = filepath.WalkDir(top, func(name string, entry fs.DirEntry, err error) error {
				switch {
				case os.IsNotExist(err):
					return nil // it goes while we look, which is another event
				case err != nil || !entry.IsDir():
					return err
				case name != top && strings.HasPrefix(entry.Name(), "."):
					return fs.SkipDir
				}
				return w.Add(name)
			})
		}
	}
	if err != nil {
		w.Close()
		return nil, fmt.Errorf("watch %s: %w", path, err)
	}
	return e, nil
}

// sees returns when something has changed and is quiet again; the error is that of ctx.
func (e *eye) sees(ctx context.Context) error {
	var quiet, last <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case event := <-e.Events:
			if !e.concerns(event.Name) {
				continue
			}
		case <-e.Errors: // events may be missing
		case <-quiet:
			return nil
		case <-last:
			return nil
		}
		quiet = time.After(quietFor)
		if last == nil {
			last = time.After(lookAtLast)
		}
	}
}

func (e *eye) concerns(name string) bool {
	if e.named[name] {
		return true
	}
	for _, top := range e.tree {
		if strings.HasPrefix(name, top+"/") {
			return true
		}
	}
	return false
}
