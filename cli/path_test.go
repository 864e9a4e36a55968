package cli

import (
	"strings"
	"testing"

	"github.com/sluice-net/sluice/cli/command"
)

func TestPathCommands(t *testing.T) {
	const found = `"found":true,"hops":[{"switch":"00000000000000a1","in":1,"out":2},{"switch":"00000000000000a2","in":2,"out":1}],
		"available_bits_per_second":12000000,"delay_milliseconds":1.5,"jitter_milliseconds":0.25,"loss":0.001,"algorithm":"larac","exact":false,"gap":0.034,"elapsed_milliseconds":7.2`
	url := fakeController(t, map[string]string{
		"/api/v1/path/find?from=10.0.0.1&limit=100&max_delay=5&max_loss=0.001&min_bandwidth=1500000&objective=jitter&to=a2%2F1": "{" + found + "}",
		"/api/v1/path/find?exclude=a1%2F2%2Ca1%2F3&from=a&limit=20&objective=hops&to=b":                                         `{"found":false,"reason":"no path: not connected","hops":[]}`,
		"/api/v1/path/explain?from=a&limit=100&objective=widest&to=b": "{" + found + `,"links":[
			{"from":{"switch":"a1","port":2},"to":{"switch":"a2","port":2},"available_bits_per_second":12000000,"delay_milliseconds":1.5,"loss":0.001,"on_path":true},
			{"from":{"switch":"a2","port":2},"to":{"switch":"a1","port":2},"available_bits_per_second":0,"loss":0,"on_path":false,"out":"capacity not known"}]}`,
	})
	for _, c := range []struct {
		args []string
		says []string
	}{
		{
			[]string{"find", "10.0.0.1", "a2/1", "--bandwidth", "1.5Mbit", "--delay", "5ms", "--loss", "0.1%", "--objective", "jitter"},
			[]string{"00000000000000a1/1>2, 00000000000000a2/2>1", "12 Mbit/s", "1.50 ms", "0.1 %", "gap        3.4 %", "larac"},
		},
		{[]string{"find", "a", "b", "--exclude", "a1/2", "--exclude", "a1/3", "--limit", "20ms"}, []string{"found    false", "no path: not connected"}},
		{[]string{"explain", "a", "b", "--objective", "widest"}, []string{"a1/2  a2/2  12 Mbit/s", "true     -", "capacity not known"}},
		{[]string{"explain", "a", "b", "--objective", "widest", "--json"}, []string{`"gap": 0.034`, `"out": "capacity not known"`}},
	} {
		code, out, errOut := sluice(t, append(append([]string{"path"}, c.args...), "--server", url)...)
		for _, want := range c.says {
			if code != command.ExitOK || !strings.Contains(out, want) {
				t.Errorf("%v: code %d, no %q in:\n%s%s", c.args, code, want, out, errOut)
			}
		}
	}
	for _, wrong := range [][]string{
		{"--bandwidth", "much"},
		{"--bandwidth", "-1"},
		{"--bandwidth", "1e30"},
		{"--bandwidth", "NaN"},
		{"--loss", "-0.1"},
		{"--loss", "some"},
		{"--objective", "beauty"},
		{"--delay", "5"},
	} {
		if code, _, errOut := sluice(t, append([]string{"path", "find", "a", "b", "--server", url}, wrong...)...); code != command.ExitUsage || !strings.Contains(errOut, wrong[0]) {
			t.Errorf("%v: code %d, %s", wrong, code, errOut)
		}
	}
}
