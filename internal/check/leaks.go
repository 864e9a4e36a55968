package check

import (
	"go/ast"
	"strings"
)

// CheckLeakChecks finds packages that start goroutines but whose tests do not
// end with a leak check (goleak in TestMain). A package without any test is
// reported too.
func CheckLeakChecks(t *Tree) []Problem {
	type state struct{ starts, checked bool }
	packages := map[string]*state{}
	for _, f := range t.Files {
		s := packages[f.Dir()]
		if s == nil {
			s = &state{}
			packages[f.Dir()] = s
		}
		if f.Test() {
			s.checked = s.checked || strings.Contains(string(f.Text), "goleak.Verify")
			continue
		}
		if f.AST.Name.Name == "main" {
			continue
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			if _, ok := n.(*ast.GoStmt); ok {
				s.starts = true
			}
			return !s.starts
		})
	}
	var problems []Problem
	for _, dir := range t.Packages() {
		if s := packages[dir]; s.starts && !s.checked {
			problems = append(problems, Problem{Path: dir, Text: "starts goroutines, but no test calls goleak.VerifyTestMain"})
		}
	}
	return problems
}
