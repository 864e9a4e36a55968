package check

import (
	"fmt"
	"go/ast"
	"regexp"
	"strings"
)

var (
	namedTest = regexp.MustCompile("`([a-z0-9/]+)\\.(Test[A-Za-z0-9]+)`")
	namedFile = regexp.MustCompile("`([a-z0-9/]+/[a-z0-9_]+\\.go)`")
)

// CheckNamed finds tests and files that Markdown files name, as `folder.TestName` and
// `folder/file.go`, and that do not exist: a sentence that names its test is as good as the
// test, and a reader goes by the files.
func CheckNamed(root string, t *Tree) ([]Problem, error) {
	tests, files := testsOf(t), map[string]bool{}
	for _, f := range t.Files {
		files[f.Path] = true
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
				if !files[m[1]] {
					problems = append(problems, Problem{Path: rel, Line: number, Text: "there is no file " + m[1]})
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

// testsOf are the functions of a tree's tests, as folder.TestName.
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
