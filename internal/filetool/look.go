package filetool

import (
	"path"
	"strings"

	"github.com/stockade-dev/stockade/internal/filetool/patch"
	"github.com/stockade-dev/stockade/internal/filetool/tree"
	"github.com/stockade-dev/stockade/sandbox/file"
)

// named is a path of a request, and how it is going to be looked up.
type named struct {
	name string
	tree.Options
}

// maxNames bounds what policy is told of: the bytes of all paths together.
const maxNames = 256 << 10

// Look says what a request is about to touch, by what its paths lead to now, whatever the capabilities say: for whoever
// judges it before it is done. It opens nothing but directories on the way. What cannot be looked up is told as it was asked, made absolute.
func (t *Tools) Look(r *file.Request) (file.Sight, *file.Fault) {
	if fault := r.Validate(); fault != nil && fault.Status == file.Error {
		return file.Sight{}, fault
	}
	free := &file.Caps{FollowSymlinks: file.FollowAllow}
	look := t.tree.Under(free)
	var s file.Sight
	var names []named
	names, s.Patched = t.names(r)
	size := 0
	for _, n := range names {
		if size += len(n.name); size > maxNames {
			return file.Sight{}, &file.Fault{Status: file.Error, Code: file.CodePatchBytes, Message: "the patch names more paths than policy can be told of"}
		}
		asked := n.name
		if !strings.HasPrefix(asked, "/") {
			asked = t.tree.Workdir() + "/" + asked
		}
		seen := file.Seen{Path: n.name, Resolved: path.Clean(asked), Write: n.Change}
		n.Missing = true
		if p, fault := look.Find(n.name, n.Options); fault == nil {
			resolved := p.Path
			p.Close()
			seen.Link = resolved != seen.Resolved
			seen.Resolved = resolved
		}
		seen.Path, seen.Resolved = strings.ToValidUTF8(seen.Path, "\uFFFD"), strings.ToValidUTF8(seen.Resolved, "\uFFFD")
		s.Paths = append(s.Paths, seen)
	}
	return s, nil
}

// Mend ends what a change that was cut off in the middle has left, by the request that it was: the list of what a patch changes lies above
// every one of its files. It is for who has learned that the worker before this one was lost.
func (t *Tools) Mend(r *file.Request) {
	if r.Validate() != nil || !r.Op.Changes() {
		return
	}
	t.changes.Lock()
	defer t.changes.Unlock()
	names, _ := t.names(r)
	for _, n := range names {
		n.Missing = true
		if p, fault := t.find(n.name, n.Options); fault == nil {
			p.Close()
		}
	}
}

// names are the paths that a request names. A patch that cannot be read names the working directory: what it is about is not known.
func (t *Tools) names(r *file.Request) (list []named, patched int64) {
	see, change := tree.Options{}, tree.Options{Change: true}
	itself := tree.Options{Change: true, NoFollow: true}
	switch {
	case r.Read != nil:
		return []named{{r.Read.Name(), see}}, 0
	case r.Write != nil:
		return []named{{r.Write.Name(), change}}, 0
	case r.Edit != nil:
		return []named{{r.Edit.Name(), change}}, 0
	case r.Grep != nil:
		return []named{{r.Grep.Name(), see}}, 0
	case r.Glob != nil:
		return []named{{r.Glob.Name(), see}}, 0
	case r.Stat != nil:
		return []named{{r.Stat.Name(), tree.Options{NoFollow: r.Stat.Link}}}, 0
	case r.List != nil:
		return []named{{r.List.Name(), see}}, 0
	case r.Mkdir != nil:
		return []named{{r.Mkdir.Name(), change}}, 0
	case r.Move != nil:
		return []named{{r.Move.Name(), itself}, {r.Move.Destination(), itself}}, 0
	case r.Remove != nil:
		return []named{{r.Remove.Name(), itself}}, 0
	}
	if text, fault := t.patchText(&r.Patch.Patch); fault == nil {
		format := r.Patch.Format
		if format == "" {
			format = "v4a"
		}
		if parsed, bad := patch.Parse(format, text); bad == nil {
			once := map[string]bool{}
			for _, f := range parsed.Files {
				for _, name := range []string{f.Path, f.MoveTo} {
					if name != "" && !once[name] {
						once[name] = true
						list = append(list, named{name, change})
					}
				}
			}
			return list, int64(len(list))
		}
	}
	return []named{{"", see}}, 0
}
