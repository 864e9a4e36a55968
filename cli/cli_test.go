package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/internal/clitest"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/kit/commands/commandstest"
	"github.com/sluice-net/sluice/services"
)

func TestMain(m *testing.M) {
	commandstest.ClearEnvironment()
	goleak.VerifyTestMain(m)
}

// sluice runs a command line and returns its exit code and what it wrote.
func sluice(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	return sluiceContext(t.Context(), args...)
}

func sluiceContext(ctx context.Context, args ...string) (code int, out, errOut string) {
	var stdout, stderr bytes.Buffer
	app := &commands.App{Output: command.Output{Out: &stdout, Err: &stderr}}
	code = command.Run(ctx, New(app, services.All()), &app.Output, args)
	return code, stdout.String(), stderr.String()
}

// fakeController answers fixed texts by path.
func fakeController(t *testing.T, answers map[string]string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := answers[r.URL.RequestURI()]
		if !ok {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprintf(w, `{"title":"Not Found","status":404,"detail":"asked for %s as %q"}`, r.URL.RequestURI(), r.Header.Get("Authorization"))
			return
		}
		fmt.Fprint(w, text)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestExitCodes(t *testing.T) {
	url := fakeController(t, nil)
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("log: {level: loud}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	wrong := filepath.Join(t.TempDir(), "controller.yaml")
	if err := os.WriteFile(wrong, []byte("log: {level: loud}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"done", []string{"version"}, command.ExitOK, ""},
		{"failed", []string{"config", "check", bad}, command.ExitFailed, "bad.yaml:1: log.level"},
		{"configuration that is not there", []string{"controller", "--config", bad + "x"}, command.ExitFailed, "no such file"},
		{"unknown command", []string{"fly"}, command.ExitUsage, "fly"},
		{"unknown subcommand", []string{"network", "switch"}, command.ExitUsage, `did you mean "switches"?`},
		{"unknown flag", []string{"status", "--fly"}, command.ExitUsage, "--fly"},
		{"missing argument", []string{"network", "path", "10.0.0.1"}, command.ExitUsage, "TO is missing"},
		{"argument too many", []string{"status", "x"}, command.ExitUsage, "too many"},
		{"word that is none", []string{"network", "path", "a", "b", "--metric", "beauty"}, command.ExitUsage, "hops"},
		{"role that is none", []string{"pki", "issue", "king", "a"}, command.ExitUsage, "operator"},
		{"roles that are fine", []string{"doctor", "--dir", t.TempDir()}, command.ExitOK, ""},
		{"role that fails", []string{"doctor", "--role", "controller", "--dir", filepath.Dir(wrong)}, command.ExitFailed, ""},
		{"role of no machine", []string{"doctor", "--role", "king"}, command.ExitUsage, "controller, agent"},
		{"refused", []string{"status", "--server", url}, command.ExitRefused, "Not Found (404)"},
		{"unreachable", []string{"status", "--server", "http://127.0.0.1:1"}, command.ExitUnreachable, "no answer"},
		{"server that is no URL", []string{"status", "--server", "localhost"}, command.ExitFailed, "http://"},
		{"token file that is not there", []string{"status", "--token-file", "/nowhere"}, command.ExitFailed, "--token-file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, _, errOut := sluice(t, c.args...)
			if code != c.code || !strings.Contains(errOut, c.says) {
				t.Errorf("exit code %d, want %d: %s", code, c.code, errOut)
			}
		})
	}
}

func TestHelp(t *testing.T) { clitest.Help(t, New(&commands.App{}, services.All())) }

func TestNetworkCommands(t *testing.T) {
	const base = "/api/v1/network/"
	url := fakeController(t, map[string]string{
		base + "switches":                              `[{"dpid":"00000000000000a1","name":"edge","address":"10.0.0.1:5","since":"2026-01-01T00:00:00Z","ports":3,"rules":7,"rewrite":"full"}]`,
		base + "ports?switch=edge":                     `[{"switch":"00000000000000a1","port":1,"name":"p1","up":true,"edge":true,"traffic":{"rx_bits_per_second":2500000,"tx_bits_per_second":10}}]`,
		base + "links":                                 `[{"from":{"switch":"00000000000000a1","port":1},"to":{"switch":"00000000000000a2","port":2},"latency_milliseconds":1.5,"jitter_milliseconds":0.25,"loss":0.001,"loss_packets":1234,"loss_at":"2026-01-01T12:00:05Z","queue_loss":0.149,"queue_loss_at":"2026-01-01T12:00:00Z","capacity_bits_per_second":1000000000,"used_bits_per_second":5000,"available_bits_per_second":999995000}]`,
		base + "talkers?at=edge%2F1&limit=5":           `[{"at":{"switch":"00000000000000a1","port":1},"src":"10.0.0.1","dst":"10.0.0.2","protocol":"tcp","src_port":5000,"dst_port":80,"bits_per_second":2500000,"samples":100,"error":0.196}]`,
		base + "links/history?from=edge%2F1&since=10m": `[{"from":{"switch":"00000000000000a1","port":1},"to":{"switch":"00000000000000a2","port":2},"points":[{"at":"2026-01-01T00:00:00Z","interval_seconds":5.001,"latency_milliseconds":1.5,"jitter_milliseconds":0.25,"capacity_bits_per_second":2000000,"used_bits_per_second":500000,"available_bits_per_second":1500000,"loss":0.01,"queue_loss":0.2}]}]`,
		base + "hosts?ip=10.0.0.1":                     `[{"mac":"02:00:00:00:00:01","vlan":5,"ips":["10.0.0.1"],"at":{"switch":"00000000000000a1","port":3},"seen":"2026-01-01T00:00:00Z"}]`,
		base + "rules?owner=sos":                       `[{"switch":"00000000000000a1","owner":"sos","name":"session/1","stage":"rewrite","priority":40000,"match":"tcp","actions":"output:1","packets":9}]`,
		base + "trace?packet=tcp+dst=1":                `{}`,
		base + "paths?count=2&from=10.0.0.1&kind=widest&metric=hops&to=10.0.0.2": `[{"hops":[{"switch":"00000000000000a1","in":3,"out":1}],"latency_milliseconds":1.5,"cost":1,"free_bits_per_second":3e8}]`,
		base + "trace?packet=tcp+dport%3D80":                                     `{"packet":"tcp","steps":[{"switch":"00000000000000a1","in_port":3,"parent":-1,"packet":"tcp","tables":[{"table":0,"rule":{"owner":"sos","name":"x","stage":"select","priority":30000,"match":"tcp","actions":"output:CONTROLLER","cookie":"0x5c"}}]}]}`,
	})
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"switches"}, []string{"00000000000000a1", "edge", "full"}},
		{[]string{"ports", "--switch", "edge"}, []string{"edge/1", "HOSTS", "true", "2.5 Mbit/s", "10 bit/s"}},
		{[]string{"links"}, []string{"00000000000000a2/2", "1.50 ms", "0.25 ms", "0.1 %", "1234", "14.9 %", "1 Gbit/s", "5 kbit/s"}},
		{[]string{"history", "edge/1", "--since", "10m"}, []string{"00000000000000a2/2", "1.50 ms", "0.25 ms", "1 %", "20 %", "2 Mbit/s", "500 kbit/s", "1.5 Mbit/s"}},
		{[]string{"talkers", "--at", "edge/1", "--limit", "5"}, []string{"edge/1", "10.0.0.1", "5000", "10.0.0.2", "80", "tcp", "2.5 Mbit/s", "19.6 %"}},
		{[]string{"hosts", "--ip", "10.0.0.1"}, []string{"02:00:00:00:00:01", "5", "edge/3"}},
		{[]string{"rules", "--owner", "sos"}, []string{"edge", "session/1", "rewrite", "CONFIRMED", "false"}},
		{[]string{"path", "10.0.0.1", "10.0.0.2", "--kind", "widest", "--metric", "hops", "--count", "2"}, []string{"edge/3>1", "300 Mbit/s"}},
		{[]string{"trace", "tcp", "dport=80"}, []string{"owner sos", "stage select"}},
	} {
		t.Run(c.args[0], func(t *testing.T) {
			args := append([]string{"network", "--server", url}, c.args...)
			code, out, errOut := sluice(t, args...)
			if code != command.ExitOK {
				t.Fatalf("exit code %d: %s", code, errOut)
			}
			for _, w := range c.want {
				if !strings.Contains(out, w) {
					t.Errorf("does not show %q:\n%s", w, out)
				}
			}
			code, out, _ = sluice(t, append(args, "--json")...)
			if code != command.ExitOK || !json.Valid([]byte(out)) {
				t.Errorf("--json: exit code %d: %s", code, out)
			}
		})
	}
}

func TestHistoryAsCSV(t *testing.T) {
	url := fakeController(t, map[string]string{
		"/api/v1/network/links/history?from=edge%2F1": `[{"from":{"switch":"a1","port":1},"to":{"switch":"a2","port":2},"points":[` +
			`{"at":"2026-01-01T00:00:05.5Z","interval_seconds":5.001,"latency_milliseconds":1.5,"jitter_milliseconds":0.25,"capacity_bits_per_second":2000000,"used_bits_per_second":500000,"available_bits_per_second":1500000,"loss":0.01},` +
			`{"at":"2026-01-01T00:00:10Z","interval_seconds":5,"used_bits_per_second":7}]}]`,
	})
	const want = "from,to,at,interval_seconds,latency_milliseconds,jitter_milliseconds,capacity_bits_per_second,used_bits_per_second,available_bits_per_second,loss,queue_loss\n" +
		"a1/1,a2/2,2026-01-01T00:00:05.5Z,5.001,1.5,0.25,2000000,500000,1500000,0.01,0\n" +
		"a1/1,a2/2,2026-01-01T00:00:10Z,5,,0,,7,,0,0\n"
	code, out, errOut := sluice(t, "network", "history", "edge/1", "--csv", "--server", url)
	if code != command.ExitOK || out != want {
		t.Errorf("exit code %d: %s\n%s\nwant\n%s", code, errOut, out, want)
	}
	if code, _, _ := sluice(t, "network", "history", "edge/1", "--csv", "--json", "--server", url); code != command.ExitUsage {
		t.Errorf("--csv and --json: exit code %d", code)
	}
}

func TestConfigCommands(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "controller.yaml")
	code, example, errOut := sluice(t, "config", "example", "controller")
	if code != command.ExitOK {
		t.Fatal(errOut)
	}
	if err := os.WriteFile(file, []byte(example), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, errOut := sluice(t, "config", "check", file); code != command.ExitOK || !strings.Contains(out, "nothing is wrong") {
		t.Errorf("the example: %d %s%s", code, out, errOut)
	}
	for _, kind := range []string{"agent", "mobile", "cinema-egress", "cinema-ingress"} {
		_, example, _ := sluice(t, "config", "example", kind)
		file := filepath.Join(dir, kind+".yaml")
		if err := os.WriteFile(file, []byte(example), 0o600); err != nil {
			t.Fatal(err)
		}
		_, out, errOut := sluice(t, "config", "check", "--no-files", file)
		if strings.Contains(out+errOut, "unknown key") || strings.Contains(out, "nothing is wrong") && !strings.HasSuffix(strings.TrimSpace(out), " of "+kind) {
			t.Errorf("the example of %s: %s%s", kind, out, errOut)
		}
		if code, _, errOut := sluice(t, "config", "check", "--kind", "controller", file); code == command.ExitOK || errOut == "" {
			t.Errorf("the example of %s passes as the configuration of a controller", kind)
		}
	}
	if code, out, _ := sluice(t, "config", "show", "-c", file, "--set", "store.password=hunter2", "--set", "store.username=me", "--set", "log.level=debug"); code != command.ExitOK || !strings.Contains(out, "level: debug") || strings.Contains(out, "hunter2") {
		t.Errorf("show: %d\n%s", code, out)
	}
	if err := os.WriteFile(file, []byte("logg: 1\napi: {listen: x}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, _ := sluice(t, "config", "check", file, "--json")
	var problems []struct{ Line int }
	if err := json.Unmarshal([]byte(out), &problems); err != nil || code != command.ExitFailed || len(problems) != 2 {
		t.Errorf("--json: %d, %v: %s", code, err, out)
	}
}

func TestPKICommands(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	for _, args := range [][]string{
		{"init"},
		{"issue", "controller", "ctl", "--host", "192.0.2.1"},
		{"issue", "agent", "agent-1", "--host", "192.0.2.11", "--days", "30"},
		{"issue", "switch", "edge-1"},
		{"issue", "operator", "alice"},
	} {
		if code, _, errOut := sluice(t, append([]string{"pki", "--dir", dir}, args...)...); code != command.ExitOK {
			t.Fatalf("%v: %d %s", args, code, errOut)
		}
	}
	code, out, _ := sluice(t, "pki", "show", "--dir", dir)
	if code != command.ExitOK || strings.Count(out, "\n") != 6 || !strings.Contains(out, "192.0.2.11") {
		t.Errorf("show: %d\n%s", code, out)
	}
	if _, out, _ := sluice(t, "pki", "issue", "agent", "renewed", "--dir", dir, "--host", "192.0.2.11", "--host", "192.0.2.12"); strings.Contains(out, "kept") {
		t.Errorf("a new certificate keeps something: %s", out)
	}
	if _, out, errOut := sluice(t, "pki", "issue", "agent", "renewed", "--dir", dir); !strings.Contains(out, "192.0.2.11 192.0.2.12") || errOut != "" {
		t.Errorf("renewed: %s%s", out, errOut)
	}
	if _, _, errOut := sluice(t, "pki", "issue", "operator", "renewed", "--dir", dir, "--host", "192.0.2.12"); !strings.Contains(errOut, "no longer good for 192.0.2.11") || !strings.Contains(errOut, "was a certificate of role agent") {
		t.Errorf("renewed with less: %s", errOut)
	}
	if _, out, _ := sluice(t, "pki", "show", "--dir", dir); !strings.Contains(out, "renewed    operator") {
		t.Errorf("shown: %s", out)
	}
	if code, out, errOut := sluice(t, "pki", "revoke", "renewed", "--dir", dir); code != command.ExitOK || !strings.Contains(out, "3 revoked now, 3 in all") {
		t.Errorf("revoked by name, with those that it was renewed from: %d %s%s", code, out, errOut)
	}
	if code, out, _ := sluice(t, "pki", "revoke", "6f0c1d25a4e9b37781", "--dir", dir); code != command.ExitOK || !strings.Contains(out, "1 revoked now, 4 in all") {
		t.Errorf("revoked by number: %d %s", code, out)
	}
	if code, _, errOut := sluice(t, "pki", "revoke", "nobody", "--dir", dir); code != command.ExitFailed || !strings.Contains(errOut, "serial number") {
		t.Errorf("revoked nobody: %d %s", code, errOut)
	}
	if code, _, errOut := sluice(t, "pki", "init", "--dir", dir); code != command.ExitFailed || !strings.Contains(errOut, "already") {
		t.Errorf("a second authority: %d %s", code, errOut)
	}
	if code, _, errOut := sluice(t, "pki", "issue", "agent", "a", "--dir", dir, "--days", "0"); code != command.ExitUsage {
		t.Errorf("no day of validity: %d %s", code, errOut)
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if code, out, errOut := sluice(t, "completion", shell); code != command.ExitOK || !strings.Contains(out, "sluice") {
			t.Errorf("%s: %d %s", shell, code, errOut)
		}
	}
	if _, out, _ := sluice(t, "__complete", "pki", "issue", ""); !strings.Contains(out, "operator") {
		t.Errorf("roles are not completed: %s", out)
	}
}

// TestNounAloneLists checks that the noun of a service lists its items, with the flags of its list,
// and refuses other words.
func TestNounAloneLists(t *testing.T) {
	url := fakeController(t, map[string]string{"/api/v1/sos/sessions?limit=7&state=live": `[{"id":"s17"}]`})
	for _, line := range []string{"sos sessions", "sos sessions list"} {
		args := append(strings.Fields(line), "--state", "live", "--limit", "7", "--server", url)
		if code, out, errOut := sluice(t, args...); code != command.ExitOK || !strings.Contains(out, "s17") {
			t.Errorf("%s: exit code %d: %s%s", line, code, out, errOut)
		}
	}
	if code, _, errOut := sluice(t, "sos", "sessions", "lits", "--server", url); code != command.ExitUsage || !strings.Contains(errOut, `did you mean "list"?`) {
		t.Errorf("exit code %d: %s", code, errOut)
	}
	if code, out, _ := sluice(t, "sos"); code != command.ExitOK || !strings.Contains(out, "Available Commands") {
		t.Errorf("a service alone does not print its help: %s", out)
	}
}

// TestConfigCheckWarns checks that an old name of a key is no fault, and that the check names the
// new one.
func TestConfigCheckWarns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "controller.yaml")
	if err := os.WriteFile(file, []byte("data_dir: /tmp\nsos: {tls: {cert: /c, key: /k, ca: /a}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, _ := sluice(t, "config", "check", "--no-files", file)
	if code != command.ExitOK || !strings.Contains(out, "warning: sos.tls is an old name of agents.tls") {
		t.Errorf("exit code %d: %s", code, out)
	}
}
