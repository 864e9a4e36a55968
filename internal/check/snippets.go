package check

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Snippet is a fenced block of a Markdown file whose info string starts with "sh runnable". That
// means that the block works as printed. Further words of the info string are options of the block:
// "root" if it needs to be run as root, and "always" if it cleans up and is also run after an
// earlier block has failed.
//
//	```sh runnable root
//	sluice-lab status
//	```
type Snippet struct {
	Path string // relative to the root
	Line int    // number of the first line of the block's text
	Root bool
	// Always means that the block is also run after an earlier block of the document has failed.
	Always bool
	// On names the machines on which the block is to be run. The info string of such a block is "sh
	// on MACHINE...", and a test that has these machines runs it.
	On   []string
	Text string
}

// Snippets returns the runnable blocks of README.md, of ARCHITECTURE.md, and of every Markdown file
// below docs/ in the order of the files' names. It omits the blocks that name machines.
func Snippets(root string) ([]Snippet, error) {
	files := []string{filepath.Join(root, "README.md"), filepath.Join(root, "ARCHITECTURE.md")}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".md") {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for documentation: %w", err)
	}
	var all []Snippet
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return nil, err
		}
		found, err := parseSnippets(filepath.ToSlash(rel), text)
		if err != nil {
			return nil, err
		}
		all = append(all, slices.DeleteFunc(found, func(s Snippet) bool { return len(s.On) > 0 })...)
	}
	return all, nil
}

// OnMachines returns the blocks of one document that name machines, in their order.
func OnMachines(root, path string) ([]Snippet, error) {
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return nil, err
	}
	found, err := parseSnippets(path, text)
	return slices.DeleteFunc(found, func(s Snippet) bool { return len(s.On) == 0 }), err
}

func parseSnippets(path string, text []byte) ([]Snippet, error) {
	var (
		found  []Snippet
		open   bool // inside any fence
		fence  string
		indent string
		cur    *Snippet
		number int
	)
	for raw := range strings.Lines(string(text)) {
		number++
		line := strings.TrimRight(raw, "\r\n")
		body := strings.TrimLeft(line, " ")
		switch {
		case !open && strings.HasPrefix(body, "```"):
			open, fence = true, body[:len(body)-len(strings.TrimLeft(body, "`"))]
			indent = line[:len(line)-len(body)]
			words := strings.Fields(body[len(fence):])
			if len(words) > 2 && words[0] == "sh" && words[1] == "on" {
				cur = &Snippet{Path: path, Line: number + 1, On: words[2:]}
				continue
			}
			if len(words) < 2 || words[0] != "sh" || words[1] != "runnable" {
				continue
			}
			cur = &Snippet{Path: path, Line: number + 1}
			for _, option := range words[2:] {
				switch option {
				case "root":
					cur.Root = true
				case "always":
					cur.Always = true
				default:
					return nil, fmt.Errorf("%s:%d: unknown option %q of a runnable block; known: root, always", path, number, option)
				}
			}
		case open && strings.HasPrefix(body, fence) && strings.Trim(body, "` ") == "":
			open = false
			if cur != nil {
				found = append(found, *cur)
				cur = nil
			}
		case cur != nil:
			cur.Text += strings.TrimPrefix(line, indent) + "\n"
		}
	}
	if open {
		return nil, fmt.Errorf("%s: a fenced block is never closed", path)
	}
	return found, nil
}

// Sandbox runs the snippets of one document in order, in the same folder and with an environment of
// its own. So a later block may use a file that an earlier block has written, or a process that an
// earlier block has started in the background.
type Sandbox struct {
	Dir string // working folder and home
	Bin string // folder put first on the PATH

	groups []int // process groups of the blocks that have run
}

// Close kills the processes that the blocks have left running.
func (s *Sandbox) Close() {
	for _, group := range s.groups {
		_ = syscall.Kill(-group, syscall.SIGKILL) // an error means that nothing was left
	}
}

// Run executes one snippet by bash, which stops at the first command that fails. The error contains
// the snippet and its output.
func (s *Sandbox) Run(ctx context.Context, snippet Snippet) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", snippet.Text)
	cmd.Dir = s.Dir
	cmd.Env = []string{
		"PATH=" + s.Bin + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + s.Dir, "LANG=C.UTF-8", "NO_COLOR=1",
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// The output goes to a file and not to a pipe, because Run would wait for a background process
	// that keeps a pipe open.
	out, err := os.CreateTemp("", "snippet-*.log")
	if err != nil {
		return fmt.Errorf("keep the output of %s:%d: %w", snippet.Path, snippet.Line, err)
	}
	defer os.Remove(out.Name())
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Run()
	if cmd.Process != nil {
		s.groups = append(s.groups, cmd.Process.Pid)
	}
	if err == nil {
		return nil
	}
	printed, readErr := os.ReadFile(out.Name())
	if readErr != nil {
		printed = []byte(readErr.Error())
	}
	return fmt.Errorf("%s:%d: %w\n--- block\n%s--- output\n%s", snippet.Path, snippet.Line, err, snippet.Text, tail(printed))
}

func tail(b []byte) []byte {
	const most = 4000
	if len(b) > most {
		b = slices.Concat([]byte("...\n"), b[len(b)-most:])
	}
	return b
}
