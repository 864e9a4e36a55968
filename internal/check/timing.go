package check

import (
	"fmt"
	"go/ast"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// timingList is the file with the functions that CheckTiming leaves out.
const timingList = ".ci/timing"

// leastBound is the shortest deadline that a test may set for something that it waits for.
const leastBound = 30 * time.Second

// speed matches the units of rates, and percent signs, in the message of a failure.
var speed = regexp.MustCompile(`[KMG]bit|bit/s|bytes/s|%%`)

// CheckTiming finds tests that fail because something took too long or was too slow. It looks for a
// condition on elapsed time that leads to a failure, and for a comparison that leads to a failure
// whose message has a rate or a percentage. It allows deadlines of at least leastBound, and
// everything in a function that runs on the fake clock of testing/synctest. It leaves out the
// functions of timingList, each of which must have a reason. A function of timingList that needs no
// exception is a problem.
func CheckTiming(root string, t *Tree) ([]Problem, error) {
	exceptions, err := readList(filepath.Join(root, filepath.FromSlash(timingList)))
	if err != nil {
		return nil, err
	}
	var problems []Problem
	used := map[string]bool{}
	for _, f := range t.Files {
		if !f.Test() {
			continue
		}
		for _, d := range f.AST.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil || onFakeClock(fn) {
				continue
			}
			found := timedFailures(fn)
			name := f.Dir() + "." + fn.Name.Name
			if len(found) > 0 && slices.ContainsFunc(exceptions, func(e listed) bool { return e.name == name }) {
				used[name] = true
				continue
			}
			for _, pos := range found {
				problems = append(problems, Problem{Path: f.Path, Line: t.Line(pos), Text: "a test that fails when the machine is slow; say what happens, and leave how fast to an experiment or a benchmark"})
			}
		}
	}
	for _, e := range exceptions {
		if !used[e.name] {
			problems = append(problems, Problem{Path: timingList, Line: e.line, Text: fmt.Sprintf("%s needs no exception", e.name)})
		}
	}
	return problems, nil
}

// onFakeClock reports whether CheckTiming allows everything in a function: because it calls
// synctest.Test, or because it is a benchmark.
func onFakeClock(fn *ast.FuncDecl) bool {
	found := fn.Recv == nil && len(fn.Name.Name) > 9 && fn.Name.Name[:9] == "Benchmark"
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		if e, ok := n.(ast.Expr); ok && calls(e, "synctest", "Test") {
			found = true
		}
		return !found
	})
	return found
}

// timedFailures returns the places in a function at which a test fails because of elapsed time, or
// because of a rate or share that the failure's message names.
func timedFailures(fn *ast.FuncDecl) (found []token.Pos) {
	elapsed := elapsedNames(fn)
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		s, ok := n.(*ast.IfStmt)
		if !ok {
			return true
		}
		fails, fast := failure(s.Body)
		if fails && (comparesElapsed(s.Cond, elapsed) || fast && ordered(s.Cond)) {
			found = append(found, s.Pos())
		}
		return true
	})
	return found
}

// elapsedNames returns the variables of a function that are assigned elapsed time.
func elapsedNames(fn *ast.FuncDecl) map[string]bool {
	names := map[string]bool{}
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		a, ok := n.(*ast.AssignStmt)
		if !ok || len(a.Lhs) != len(a.Rhs) {
			return true
		}
		for i, value := range a.Rhs {
			if name, ok := a.Lhs[i].(*ast.Ident); ok && containsElapsed(value) {
				names[name.Name] = true
			}
		}
		return true
	})
	return names
}

// containsElapsed reports whether an expression calls time.Since.
func containsElapsed(e ast.Expr) (found bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		if x, ok := n.(ast.Expr); ok && calls(x, "time", "Since") {
			found = true
		}
		return !found
	})
	return found
}

// comparesElapsed reports whether a condition becomes true when elapsed time exceeds a value,
// unless that value is a deadline of at least leastBound. A condition that something took too
// little time does not count, because it does not depend on the machine's speed.
func comparesElapsed(cond ast.Expr, elapsed map[string]bool) (found bool) {
	mentions := func(e ast.Expr) bool {
		named := false
		ast.Inspect(e, func(n ast.Node) bool {
			if name, ok := n.(*ast.Ident); ok && elapsed[name.Name] {
				named = true
			}
			return !named
		})
		return named || containsElapsed(e)
	}
	ast.Inspect(cond, func(n ast.Node) bool {
		b, ok := n.(*ast.BinaryExpr)
		if !ok {
			return !found
		}
		switch b.Op {
		case token.GTR, token.GEQ:
			found = found || mentions(b.X) && duration(b.Y) < leastBound
		case token.LSS, token.LEQ:
			found = found || mentions(b.Y) && duration(b.X) < leastBound
		}
		return !found
	})
	return found
}

// ordered reports whether a condition contains one of the operators <, <=, > and >=.
func ordered(cond ast.Expr) (found bool) {
	ast.Inspect(cond, func(n ast.Node) bool {
		if b, ok := n.(*ast.BinaryExpr); ok && (b.Op == token.LSS || b.Op == token.GTR || b.Op == token.LEQ || b.Op == token.GEQ) {
			found = true
		}
		return !found
	})
	return found
}

// duration returns the value of expressions such as 30*time.Second, and 0 for others.
func duration(e ast.Expr) time.Duration {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		if e.Op == token.MUL {
			number, unit := e.X, e.Y
			lit, ok := number.(*ast.BasicLit)
			if !ok {
				return 0
			}
			n, err := strconv.Atoi(lit.Value)
			if err != nil {
				return 0
			}
			return time.Duration(n) * duration(unit)
		}
	case *ast.SelectorExpr:
		switch selected(e) {
		case "time.Second":
			return time.Second
		case "time.Minute":
			return time.Minute
		case "time.Hour":
			return time.Hour
		}
	}
	return 0
}

// failure reports whether a block fails a test, and whether the message of that failure contains a
// rate or a percentage.
func failure(body *ast.BlockStmt) (fails, fast bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !slices.Contains([]string{"Error", "Errorf", "Fatal", "Fatalf"}, sel.Sel.Name) {
			return true
		}
		if on, ok := sel.X.(*ast.Ident); !ok || on.Name != "t" && on.Name != "tb" {
			inner, ok := sel.X.(*ast.SelectorExpr)
			if !ok || inner.Sel.Name != "t" {
				return true
			}
		}
		fails = true
		if len(call.Args) > 0 {
			if text, ok := literal(call.Args[0]); ok && speed.MatchString(text) {
				fast = true
			}
		}
		return true
	})
	return fails, fast
}

// selected returns the text of an expression such as time.Second, or "" for other expressions.
func selected(e *ast.SelectorExpr) string {
	if pkg, ok := e.X.(*ast.Ident); ok {
		return pkg.Name + "." + e.Sel.Name
	}
	return ""
}

// literal returns the value of a string literal.
func literal(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}
