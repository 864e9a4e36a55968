package jsonlimit

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	l := Limits{Depth: 3, Values: 8, List: 7, Key: 5}
	cases := []struct{ name, text, want string }{
		{"nothing", ``, ""},
		{"a number", `7`, ""},
		{"three levels", `[{"a":[1]}]`, ""},
		{"side by side", `[[1],[2],[3]]`, ""},
		{"four levels", `[[[[1]]]]`, "more than 3 levels"},
		{"brackets in a string", `"[[[[{{{{,,,,,,,,,,"`, ""},
		{"an escaped quotation mark", `["\"[[[[", 1]`, ""},
		{"an escaped backslash at the end", `["\\",[[[1]]]]`, "more than 3 levels"},
		{"eight values", `[1,2,3,4,5,6,7]`, ""},
		{"nine values", `[[1,2,3],[1,2,3]]`, "more than 8 values"},
		{"eight elements", `[1,2,3,4,5,6,7,8]`, "more than 7 elements"},
		{"members count as elements", `{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1}`, "more than 7 elements"},
		{"more ends than beginnings", `]]]],,,`, ""},
		{"empty lists count", `[[],[],[],[],[]]`, "more than 8 values"},
		{"a key", `{"abcde":1}`, ""},
		{"a long key", `{"abcdef":1}`, "a key of 6 bytes"},
		{"a long key before a blank", "{\"abcdef\" \n:1}", "a key of 6 bytes"},
		{"a long value", `{"a":"abcdefgh"}`, ""},
		{"a string without an end", `{"abcdefgh`, ""},
		{"a backslash at the end", `"\`, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := l.Check([]byte(c.text))
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("Check(%s) = %v, want %q", c.text, err, c.want)
			}
		})
	}
}

func TestDecode(t *testing.T) {
	var v struct{ Name string }
	for text, want := range map[string]string{
		`{"Name":"a"}`:                   "",
		`{"Name":"a"} `:                  "",
		`{"Name":"a"} {}`:                "more than one JSON value",
		`{"Nom":"a"}`:                    "unknown field",
		`{"Name":`:                       "unexpected EOF",
		strings.Repeat(`[`, 33):          "more than 32 levels",
		`[1` + strings.Repeat(",1", 5e4): "more than 50000 values",
	} {
		err := Default.Decode([]byte(text), &v)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("Decode(%.40s) = %v, want %q", text, err, want)
		}
	}
}

// A text within the limits has no more levels and values than they allow, as encoding/json
// counts them.
func FuzzCheck(f *testing.F) {
	for _, text := range []string{`{"a":[1,{"b":null}],"c":"\"[,"}`, `[[[]]]`, `"\\"`, `{"a" : 1}`} {
		f.Add([]byte(text))
	}
	l := Limits{Depth: 4, Values: 16, List: 8, Key: 8}
	f.Fuzz(func(t *testing.T, text []byte) {
		var v any
		if l.Check(text) != nil || json.Unmarshal(text, &v) != nil {
			return
		}
		if depth, values := measure(v); depth > l.Depth || values > l.Values {
			t.Errorf("%q has %d levels and %d values", text, depth, values)
		}
	})
}

// measure returns the number of levels and of values.
func measure(v any) (depth, values int) {
	var parts []any
	switch v := v.(type) {
	case []any:
		parts = v
	case map[string]any:
		for _, x := range v {
			parts = append(parts, x)
		}
	default:
		return 0, 1
	}
	values = 1
	for _, x := range parts {
		d, n := measure(x)
		depth, values = max(depth, d), values+n
	}
	return depth + 1, values
}
