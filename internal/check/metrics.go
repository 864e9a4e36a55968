package check

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
	"strings"
)

var metricName = regexp.MustCompile(`^sluice(_[a-z][a-z0-9]*)+$`)

// nonBaseUnits are endings that Prometheus' naming rules replace by base units.
var nonBaseUnits = map[string]string{
	"milliseconds": "seconds", "ms": "seconds", "microseconds": "seconds", "nanoseconds": "seconds",
	"minutes": "seconds", "bits": "bytes", "kilobytes": "bytes", "megabytes": "bytes",
	"kb": "bytes", "mb": "bytes", "percent": "ratio",
}

// CheckMetrics finds Prometheus metrics whose names or help texts break the
// naming rules: prefix sluice_, snake case, base units, counters end in _total.
// It reads the options given to prometheus.NewCounter and its kin, and the
// arguments of prometheus.NewDesc.
func CheckMetrics(t *Tree) []Problem {
	var problems []Problem
	for _, f := range t.Files {
		if f.Test() {
			continue
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			m, ok := metricAt(n)
			if !ok {
				return true
			}
			for _, text := range m.faults() {
				problems = append(problems, Problem{Path: f.Path, Line: t.Line(m.pos), Text: text})
			}
			return true
		})
	}
	return problems
}

type metric struct {
	pos               token.Pos
	kind, name, help  string // kind: counter, gauge, histogram, summary; empty for a bare descriptor
	nameKnown, helped bool
}

// metricAt recognises prometheus.XxxOpts{...} and prometheus.NewDesc(...).
func metricAt(n ast.Node) (metric, bool) {
	switch x := n.(type) {
	case *ast.CompositeLit:
		typ := selected(x.Type)
		if !strings.HasSuffix(typ, "Opts") || !strings.HasPrefix(typ, "prometheus.") {
			return metric{}, false
		}
		kind := strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(typ, "prometheus."), "Opts"))
		return metricOfFields(x, kind)
	case *ast.CallExpr:
		if selected(x.Fun) != "prometheus.NewDesc" || len(x.Args) < 2 {
			return metric{}, false
		}
		m := metric{pos: x.Pos()}
		m.name, m.nameKnown = literal(x.Args[0])
		m.help, m.helped = literal(x.Args[1])
		m.helped = m.helped && m.help != "" || !isLiteral(x.Args[1])
		return m, m.nameKnown
	}
	return metric{}, false
}

func metricOfFields(x *ast.CompositeLit, kind string) (metric, bool) {
	m := metric{pos: x.Pos(), kind: kind}
	prefix := map[string]string{}
	for _, elt := range x.Elts {
		kv, ok := elt.(*ast.KeyValueExpr)
		if !ok {
			return metric{}, false
		}
		key, ok := kv.Key.(*ast.Ident)
		if !ok {
			continue
		}
		text, known := literal(kv.Value)
		switch key.Name {
		case "Namespace", "Subsystem":
			if !known {
				return metric{}, false
			}
			prefix[key.Name] = text + "_"
		case "Name":
			m.name, m.nameKnown = text, known
		case "Help":
			m.helped = text != "" || !known
		}
	}
	m.name = prefix["Namespace"] + prefix["Subsystem"] + m.name
	return m, m.nameKnown
}

func (m metric) faults() []string {
	var faults []string
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Sprintf("metric %q ", m.name)+fmt.Sprintf(format, args...))
	}
	if !metricName.MatchString(m.name) {
		fault("is not of the form sluice_words_in_snake_case")
	}
	if !m.helped {
		fault("has no help text")
	}
	base := strings.TrimSuffix(m.name, "_total")
	last := base[strings.LastIndexByte(base, '_')+1:]
	if better, bad := nonBaseUnits[last]; bad {
		fault("ends in %s; use the base unit, %s", last, better)
	}
	total := strings.HasSuffix(m.name, "_total")
	switch {
	case m.kind == "counter" && !total:
		fault("is a counter and must end in _total")
	case m.kind != "" && m.kind != "counter" && total:
		fault("is a %s and must not end in _total", m.kind)
	}
	return faults
}

func selected(e ast.Expr) string {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	pkg, ok := sel.X.(*ast.Ident)
	if !ok {
		return ""
	}
	return pkg.Name + "." + sel.Sel.Name
}

func isLiteral(e ast.Expr) bool { _, ok := e.(*ast.BasicLit); return ok }

func literal(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}
