package check

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
)

// MaxMethods is how many methods a type may have: one with more is several.
const MaxMethods = 40

// CheckMethods finds types with more than MaxMethods methods. Test files do not count.
func CheckMethods(t *Tree) []Problem {
	methods, where := map[string]int{}, map[string]string{}
	for _, f := range t.Files {
		if f.Test() {
			continue
		}
		for _, d := range f.AST.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
				name := f.Dir() + "." + receiver(fn.Recv.List[0].Type)
				methods[name]++
				where[name] = f.Path
			}
		}
	}
	var problems []Problem
	for _, name := range slices.Sorted(maps.Keys(methods)) {
		if n := methods[name]; n > MaxMethods {
			problems = append(problems, Problem{Path: where[name], Text: fmt.Sprintf("%s has %d methods, at most %d: divide it", name, n, MaxMethods)})
		}
	}
	return problems
}

// receiver is the name of a method's type.
func receiver(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.IndexListExpr:
		return receiver(x.X)
	}
	return ""
}
