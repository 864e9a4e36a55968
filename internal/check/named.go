package check

import (
	"fmt"
	"go/ast"
	"regexp"
	"strings"
)

var (
	namedTest = regexp.MustCompile("`([a-z0-9/]+)\\.(Test[A-Za-z0-9]+)`")
	namedFile = regexp.MustCompile("`([a-z0-9/]+/[a-z0-9_]+\\.go)(?::([A-Za-z0-9_]+))?`")
)

// CheckNamed finds tests, files and functions that Markdown files name, as `folder.TestName`,
// `folder/file.go` and `folder/file.go:Function`, but that do not exist. Readers rely on these
// names to find the proof of a sentence.
func CheckNamed(root string, t *Tree) ([]Problem, error) {
	tests, files := testsOf(t), map[string]map[string]bool{}
	for _, f := range t.Files {
		files[f.Path] = functionsOf(f)
	}
	problems, err := inMarkdown(root, func(_, rel, text string) (problems []Problem) {
		number := 0
		for line := range strings.Lines(text) {
			number++
			for _, m := range namedTest.FindAllStringSubmatch(line, -1) {
				if !tests[m[1]+"."+m[2]] {
					problems = append(problems, Problem{Path: rel, Line: number, Text: fmt.Sprintf("there is no test %s in %s", m[2], m[1])})
				}
			}
			for _, m := range namedFile.FindAllStringSubmatch(line, -1) {
				switch functions, ok := files[m[1]]; {
				case !ok:
					problems = append(problems, Problem{Path: rel, Line: number, Text: "there is no file " + m[1]})
				case m[2] != "" && !functions[m[2]]:
					problems = append(problems, Problem{Path: rel, Line: number, Text: fmt.Sprintf("there is no function %s in %s", m[2], m[1])})
				}
			}
		}
		return problems
	})
	if err != nil {
		return nil, fmt.Errorf("check named tests and files: %w", err)
	}
	return problems, nil
}

// testsOf returns the test functions of a tree, as folder.TestName.
func testsOf(t *Tree) map[string]bool {
	tests := map[string]bool{}
	for _, f := range t.Files {
		for _, d := range f.AST.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && f.Test() && fn.Recv == nil {
				tests[f.Dir()+"."+fn.Name.Name] = true
			}
		}
	}
	return tests
}

// functionsOf returns the names of the functions and methods that a file declares, and of the
// methods of its interfaces.
func functionsOf(f *File) map[string]bool {
	functions := map[string]bool{}
	ast.Inspect(f.AST, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			functions[n.Name.Name] = true
			return false
		case *ast.InterfaceType:
			for _, m := range n.Methods.List {
				for _, name := range m.Names {
					functions[name.Name] = true
				}
			}
		}
		return true
	})
	return functions
}
