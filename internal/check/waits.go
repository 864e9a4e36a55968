package check

import (
	"go/ast"
	"go/token"
)

// CheckWaits finds tests that only let time pass: by time.Sleep, or by waiting for a timer and
// nothing else.
func CheckWaits(t *Tree) []Problem {
	var problems []Problem
	for _, f := range t.Files {
		if !f.Test() {
			continue
		}
		w := waits{timers: timersOf(f.AST)}
		ast.Inspect(f.AST, w.visit)
		for _, pos := range w.found {
			problems = append(problems, Problem{
				Path: f.Path, Line: t.Line(pos),
				Text: "a test that sleeps; poll with a deadline or wait on a channel, or say by pause.For what the time is for",
			})
		}
	}
	return problems
}

type waits struct {
	timers map[string]bool // names of timers
	chosen map[ast.Stmt]bool
	found  []token.Pos
}

func (w *waits) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.SelectStmt:
		if len(n.Body.List) > 1 { // the timer is one of several things that are waited for
			for _, c := range n.Body.List {
				if w.chosen == nil {
					w.chosen = map[ast.Stmt]bool{}
				}
				w.chosen[c.(*ast.CommClause).Comm] = true
			}
		}
	case ast.Stmt:
		if w.chosen[n] {
			return true
		}
		switch s := n.(type) {
		case *ast.ExprStmt:
			if w.idle(s.X) {
				w.found = append(w.found, n.Pos())
			}
		case *ast.AssignStmt:
			if w.idle(s.Rhs[0]) {
				w.found = append(w.found, n.Pos())
			}
		}
	}
	return true
}

// idle reports whether an expression does nothing but wait for time to pass.
func (w *waits) idle(e ast.Expr) bool {
	if calls(e, "time", "Sleep") || calls(e, "tasks", "Sleep") {
		return true
	}
	receive, ok := e.(*ast.UnaryExpr)
	if !ok || receive.Op != token.ARROW {
		return false
	}
	if calls(receive.X, "time", "After") {
		return true
	}
	s, ok := receive.X.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != "C" {
		return false
	}
	name, ok := s.X.(*ast.Ident)
	return ok && w.timers[name.Name]
}

// timersOf returns the names of the variables of a file that hold timers.
func timersOf(f *ast.File) map[string]bool {
	names := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && len(a.Lhs) == 1 && len(a.Rhs) == 1 && calls(a.Rhs[0], "time", "NewTimer") {
			if name, ok := a.Lhs[0].(*ast.Ident); ok {
				names[name.Name] = true
			}
		}
		return true
	})
	return names
}

// calls reports whether an expression calls the function with that name of a package.
func calls(e ast.Expr, pkg, name string) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || f.Sel.Name != name {
		return false
	}
	from, ok := f.X.(*ast.Ident)
	return ok && from.Name == pkg
}
