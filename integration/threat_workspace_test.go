package integration

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// workspaceThreats aim at what runs outside of what was written inside.
var workspaceThreats = []threat{
	{id: "T144", what: "git of the session configures git of the host", try: gitConfigures, control: gitConfigured},
	{id: "T144", what: "a commit brings what was refused inside", try: committedHook, control: writtenHook},
}

// gitAttack tries to have programs run by whoever uses git in this directory next. It needs no luck: each step succeeds where
// nothing is protected.
const gitAttack = `
git config core.fsmonitor "touch pwned"
git config alias.status "!touch pwned"
git config extensions.worktreeConfig true && git config --worktree core.pager "touch pwned"
echo "touch pwned" >.git/hooks/pre-commit; chmod 755 .git/hooks/pre-commit
mkdir -p /tmp/template/hooks && echo "touch pwned" >/tmp/template/hooks/post-checkout && git init -q --template=/tmp/template .
printf '[core]\n\tfsmonitor = touch pwned\n' >new && mv new .git/config; rm -f new
printf '[core]\n\tpager = touch pwned\n' >.git/config.worktree
mkdir -p .git/modules/m/hooks && echo "touch pwned" >.git/modules/m/hooks/post-checkout
mv .git .moved && cp -r .moved .git && echo "touch pwned" >.git/hooks/pre-push
`

// repository is one with a commit, as the caller has it.
func (s *siege) repository() string {
	s.Helper()
	dir := filepath.Join(shared(s.T), "repository")
	cmd := exec.Command("sh", "-ec", "git init -q "+dir+" && cd "+dir+" && echo main >main && git add main && git -c user.name=u -c user.email=e commit -qm first")
	cmd.Env = append(os.Environ(), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		s.Fatalf("git: %v\n%s", err, out)
	}
	return dir
}

// programs are the files of a repository that make git run programs.
func (s *siege) programs(dir string) map[string]string {
	s.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(filepath.Join(dir, ".git"), func(path string, e os.DirEntry, err error) error {
		name := strings.TrimPrefix(path, dir+"/.git/")
		watched := strings.HasPrefix(name, "config") || strings.HasPrefix(name, "hooks") || strings.HasPrefix(name, "modules")
		if err != nil || !watched || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if len(content) > 0 { // what stands for a missing one is empty
			all[name] = string(content)
		}
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	return all
}

func gitConfigures(s *siege) {
	if _, err := exec.LookPath("git"); err != nil {
		skip(s.T, "needs git")
	}
	for _, mode := range []string{"rw", "overlay"} {
		dir := s.repository()
		before := s.programs(dir)
		session := s.session(func(o *api.SessionOpen) {
			o.Target.Local.Mounts = append(o.Target.Local.Mounts, api.Mount{HostPath: dir, GuestPath: "/work", Mode: mode})
			o.Target.Local.Workdir = "/work"
		})
		shell(s.T, s.c, session, gitAttack)
		// Work goes on all the same.
		x := shell(s.T, s.c, session, "echo more >>main && git add main && git -c user.name=u -c user.email=e commit -qm second && git log --oneline | wc -l")
		s.want(mode+": commits inside", strings.TrimSpace(text(x.Payload.Exec.Stdout)), "2")
		if mode == "overlay" {
			r, err := s.c.Commit(s.Context(), api.Workspace{SessionID: session})
			settled(s.T, r, err)
		}
		s.close(session)
		if changes := cmp.Diff(before, s.programs(dir)); changes != "" {
			s.Errorf("%s: what git runs: %s", mode, changes)
		}
		out, err := exec.Command("sh", "-c", "cd "+dir+" && git status >/dev/null && git log --oneline | wc -l && ls").CombinedOutput()
		if got := strings.Fields(string(out)); err != nil || strings.Join(got, " ") != "2 main" {
			s.Errorf("%s: git of the host: %q, %v", mode, out, err)
		}
	}
}

func gitConfigured(s *siege) {
	if _, err := exec.LookPath("git"); err != nil {
		skip(s.T, "needs git")
	}
	dir := s.repository()
	before := s.programs(dir)
	cmd := exec.Command("sh", "-c", gitAttack)
	cmd.Dir = dir
	_ = cmd.Run()
	if cmp.Equal(before, s.programs(dir)) {
		s.Error("control: without protection nothing happens")
	}
}

// hookAttack writes what is reserved, whatever it is called through, and something that is not.
const hookAttack = `for f in .envrc .mcp.json sub/../.envrc /proc/self/cwd/.mcp.json /proc/self/cwd/../work/.envrc "$@"; do
	echo pwned 2>/dev/null >"$f" && echo "wrote $f"; rm -f "$f" 2>/dev/null && echo "removed $f"; ln -f sub/x "$f" 2>/dev/null && echo "linked $f"; done
	ln -s ../.vscode sub/link; echo pwned 2>/dev/null >sub/link/tasks.json && echo "wrote through a link"; echo work >sub/work; true`

// hooked is a directory as a caller has it.
func (s *siege) hooked() string {
	s.Helper()
	dir := filepath.Join(shared(s.T), "work")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "sub"), 0o755), os.WriteFile(filepath.Join(dir, ".envrc"), []byte("mine\n"), 0o644)); err != nil {
		s.Fatal(err)
	}
	return dir
}

// committedHook: what is reserved in an overlay cannot be filled, and comes to nothing outside.
func committedHook(s *siege) {
	dir := s.hooked()
	session := s.session(func(o *api.SessionOpen) {
		o.Target.Local.Mounts = append(o.Target.Local.Mounts, api.Mount{HostPath: dir, GuestPath: "/work", Mode: "overlay"})
		o.Target.Local.Workdir = "/work"
	})
	x, err := s.c.Exec(s.Context(), api.Exec{SessionID: session, Argv: []string{"sh", "-c", hookAttack, "sh", "/proc/self/root/work/.envrc"}})
	s.want("what was done", text(settled(s.T, x, err).Payload.Exec.Stdout), "")
	r, err := s.c.Commit(s.Context(), api.Workspace{SessionID: session})
	settled(s.T, r, err)
	s.close(session)
	s.want("the host's directory", entries(s, dir), ".envrc sub")
	if mine, err := os.ReadFile(filepath.Join(dir, ".envrc")); err != nil || string(mine) != "mine\n" {
		s.Errorf(".envrc: %q, %v", mine, err)
	}
	s.want("the rest of it", entries(s, filepath.Join(dir, "sub")), "link work")
}

// writtenHook: the same in a directory of nobody's overlay.
func writtenHook(s *siege) {
	dir := s.hooked()
	if err := os.Mkdir(filepath.Join(dir, ".vscode"), 0o755); err != nil {
		s.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", hookAttack)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		s.Fatal(err)
	}
	for _, done := range []string{"wrote .envrc", "removed .envrc", "wrote .mcp.json", "wrote sub/../.envrc", "wrote /proc/self/cwd/.mcp.json", "wrote /proc/self/cwd/../work/.envrc", "wrote through a link"} {
		if !strings.Contains(string(out), done+"\n") {
			s.Errorf("control: not %s: %q", done, out)
		}
	}
}

// entries are the names in a directory of the host.
func entries(s *siege, dir string) string {
	s.Helper()
	found, err := os.ReadDir(dir)
	if err != nil {
		s.Fatal(err)
	}
	var all []string
	for _, e := range found {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}
