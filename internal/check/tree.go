package check

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// Problem is one place where the tree breaks a rule.
type Problem struct {
	Path string // relative to the root of the tree
	Line int    // 0 if the problem concerns the file or folder as a whole
	Text string
}

// String returns the problem in the format of compiler errors, so that editors can jump to its
// line.
func (p Problem) String() string {
	if p.Line == 0 {
		return p.Path + ": " + p.Text
	}
	return fmt.Sprintf("%s:%d: %s", p.Path, p.Line, p.Text)
}

// File is one parsed Go file.
type File struct {
	Path string // relative to the root, with forward slashes
	Text []byte
	AST  *ast.File
}

// Test reports whether the file belongs to a test.
func (f *File) Test() bool { return strings.HasSuffix(f.Path, "_test.go") }

// Dir returns the folder of the file relative to the root, or "." for the root.
func (f *File) Dir() string { return filepath.ToSlash(filepath.Dir(f.Path)) }

// Tree holds the parsed Go files of a repository, and the name of its main module.
type Tree struct {
	Root   string
	Module string
	Files  []*File
	Fset   *token.FileSet
}

// Load parses every Go file below root. It leaves out node_modules and the folders that the go command
// ignores (testdata, vendor, names that begin with a dot or an underscore).
func Load(root string) (*Tree, error) {
	module, err := modulePath(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, err
	}
	t := &Tree{Root: root, Module: module, Fset: token.NewFileSet()}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != root && ignored(d.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		return t.add(path)
	})
	if err != nil {
		return nil, fmt.Errorf("read the tree at %s: %w", root, err)
	}
	return t, nil
}

func ignored(name string) bool {
	return name == "testdata" || name == "vendor" || name == "node_modules" || name[0] == '.' || name[0] == '_'
}

func (t *Tree) add(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	rel, err := filepath.Rel(t.Root, path)
	if err != nil {
		return err
	}
	parsed, err := parser.ParseFile(t.Fset, path, text, parser.ParseComments)
	if err != nil {
		return err
	}
	t.Files = append(t.Files, &File{
		Path: filepath.ToSlash(rel),
		Text: text,
		AST:  parsed,
	})
	return nil
}

// Packages returns the folders that contain Go files, sorted.
func (t *Tree) Packages() []string {
	seen := map[string]bool{}
	for _, f := range t.Files {
		seen[f.Dir()] = true
	}
	dirs := make([]string, 0, len(seen))
	for dir := range seen {
		dirs = append(dirs, dir)
	}
	sort.Strings(dirs)
	return dirs
}

// Line returns the line number of a position.
func (t *Tree) Line(pos token.Pos) int { return t.Fset.Position(pos).Line }

// Root returns the nearest folder that contains go.mod, from the working folder upwards.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod in this folder or above it")
		}
		dir = up
	}
}

func modulePath(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("find the module's name: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "module "); ok {
			return strings.TrimSpace(name), nil
		}
	}
	return "", fmt.Errorf("%s: no module line", file)
}
