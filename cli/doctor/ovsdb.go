package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// row is a row of a table of Open vSwitch's database, as ovs-vsctl prints it in JSON
// (RFC 7047, section 5.1).
type row map[string]any

// table reads columns of all rows of a table.
func (s *System) table(ctx context.Context, name string, columns ...string) ([]row, error) {
	out, err := s.Output(ctx, "ovs-vsctl", "--timeout=5", "--format=json", "--columns="+strings.Join(columns, ","), "list", name)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && len(exit.Stderr) > 0 {
		err = fmt.Errorf("%w: %.200s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return nil, err
	}
	var t struct {
		Headings []string
		Data     [][]any
	}
	if err := json.Unmarshal(out, &t); err != nil {
		return nil, fmt.Errorf("what ovs-vsctl prints of table %s: %w", name, err)
	}
	var rows []row
	for _, d := range t.Data {
		r := row{}
		for i, h := range t.Headings[:min(len(t.Headings), len(d))] {
			r[h] = d[i]
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// tagged takes apart a value that says what it is: ["set", …], ["map", …], ["uuid", …].
func tagged(v any) (kind string, value any) {
	if l, ok := v.([]any); ok && len(l) == 2 {
		if kind, ok := l[0].(string); ok {
			return kind, l[1]
		}
	}
	return "", v
}

// all are the values of a column, of which there may be none.
func (r row) all(column string) []string {
	kind, v := tagged(r[column])
	elements, many := v.([]any)
	if kind != "set" || !many {
		elements = []any{r[column]}
	}
	var out []string
	for _, e := range elements {
		if _, value := tagged(e); value != nil {
			out = append(out, fmt.Sprint(value))
		}
	}
	return out
}

// text is the value of a column; empty if it has none.
func (r row) text(column string) string { return strings.Join(r.all(column), ", ") }

// pairs are the values of a column that is a map.
func (r row) pairs(column string) map[string]string {
	out := map[string]string{}
	_, v := tagged(r[column])
	list, _ := v.([]any)
	for _, p := range list {
		if kv, ok := p.([]any); ok && len(kv) == 2 {
			out[fmt.Sprint(kv[0])] = fmt.Sprint(kv[1])
		}
	}
	return out
}
