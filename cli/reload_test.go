package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/pki"
)

// reloading is the real controller with a file that changes.
type reloading struct {
	*program
	file, tokenFile string
	api, token      string
}

// startReloading starts the controller with the definitions.
func startReloading(t *testing.T, definitions string) *reloading {
	t.Helper()
	dir := t.TempDir()
	r := &reloading{program: &program{t: t}, file: filepath.Join(dir, "controller.yaml"), tokenFile: filepath.Join(dir, "token")}
	r.useToken("the-first-token-of-this-test")
	r.write(definitions)
	r.program = launch(t, "controller", "--config", r.file)
	r.api = "http://" + regexp.MustCompile(` api=(\S+)`).FindStringSubmatch(r.until("controller runs"))[1]
	r.ready()
	return r
}

// ready waits until the services have loaded.
func (r *reloading) ready() {
	r.t.Helper()
	deadline, tick := time.After(time.Minute), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.api+"/readyz", nil)
		if err != nil {
			r.t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+r.token)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			r.t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode == http.StatusOK {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			r.t.Fatalf("it is not ready: the last answer was: %s", res.Status)
		}
	}
}

// useToken puts another token into the token file.
func (r *reloading) useToken(token string) {
	r.t.Helper()
	r.token = token
	if err := os.WriteFile(r.tokenFile, []byte(token+"\n"), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// write replaces the definitions in the configuration.
func (r *reloading) write(definitions string) {
	r.t.Helper()
	dir := filepath.Dir(r.file)
	text := fmt.Sprintf("data_dir: %s\nstore: {kind: memory}\napi: {listen: '127.0.0.1:0'}\nopenflow: {listen: ['127.0.0.1:0']}\n%s", dir, definitions)
	if err := os.WriteFile(r.file, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// reload makes the controller read the configuration again, and waits until the log reports the
// result.
func (r *reloading) reload(want string) string {
	r.t.Helper()
	r.signal(syscall.SIGHUP)
	return r.until(want)
}

// ask sends a request and returns the answer's status and body.
func (r *reloading) ask(method, path, body string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.api+"/api/v1"+path, bytes.NewBufferString(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// make declares an item through the API.
func (r *reloading) make(method, path, body string) {
	r.t.Helper()
	if status, text := r.ask(method, path, body); status/100 != 2 {
		r.t.Fatalf("%s %s: %d %s", method, path, status, text)
	}
}

// listed is what lists of definitions have in common.
type listed struct {
	ID, Name, Origin, Policy string
	Rate                     json.RawMessage
}

// list returns the declared items, each with what a reload may change.
func (r *reloading) list() string {
	r.t.Helper()
	var out []string
	for _, path := range []string{"/handover/classes", "/handover/pools", "/handover/devices", "/qos/critical", "/qos/classes"} {
		status, text := r.ask(http.MethodGet, path, "")
		var all []listed
		if err := json.Unmarshal([]byte(text), &all); status != http.StatusOK || err != nil {
			r.t.Fatalf("%s: %d %s", path, status, text)
		}
		for _, x := range all {
			words := strings.Fields(strings.Join([]string{x.ID, x.Name, x.Origin, x.Policy, string(x.Rate)}, " "))
			out = append(out, strings.Join(words, ","))
		}
	}
	return strings.Join(out, " ")
}

func (r *reloading) wantList(what, want string) {
	r.t.Helper()
	if got := r.list(); got != want {
		r.t.Errorf("%s: the definitions are\n%s\nwant\n%s", what, got, want)
	}
}

const definitionsBefore = `
handover:
  classes: {office: {policy: saving}, field: {policy: saving}}
  pools: {campus: {prefix: 10.5.0.0/24, gateway: 10.5.0.1}}
  devices: {phone: {macs: ['02:00:00:00:00:01'], class: office, pool: campus}, tablet: {macs: ['02:00:00:00:00:02'], class: field, pool: campus}}
qos:
  critical: {backup: {rate: 1Mbit, match: {tcp_dst: "5001"}}, video: {rate: 2Mbit, match: {tcp_dst: "5002"}}}
  classes: {voip: {priority: 2, flows: [{ipv4_dst: 10.0.0.4, udp_dst: 5001}]}}
`

// TestReloadTakesDefinitions checks that SIGHUP applies what has been added, changed and removed in
// the file, and leaves items of the API alone. A file with errors changes nothing.
func TestReloadTakesDefinitions(t *testing.T) {
	live.Test(t)
	t.Parallel()
	r := startReloading(t, definitionsBefore)
	r.make(http.MethodPut, "/handover/classes/made", `{"policy": "seamless"}`)
	r.make(http.MethodPut, "/handover/pools/made", `{"prefix": "10.6.0.0/24", "gateway": "10.6.0.1"}`)
	r.make(http.MethodPost, "/qos/critical", `{"name": "made", "rate": "3Mbit", "match": {"tcp_dst": "5003"}}`)
	before := "field,file,saving made,api,seamless office,file,saving campus,file made,api phone,file,saving tablet,file,saving backup,file,\"1Mbit\" made,api,\"3Mbit\" video,file,\"2Mbit\" voip,file"
	r.wantList("after the start", before)

	for what, broken := range map[string]string{
		"not YAML":                  "handover: {",
		"a bad class":               "handover: {classes: {new: {policy: nonsense}}}\nqos: {critical: {new: {rate: 1kbit, match: {tcp_dst: '1'}}}}",
		"against what the API made": "handover: {classes: {new: {policy: saving}}, pools: {new: {prefix: 10.6.0.0/16, gateway: 10.6.0.9}}}",
	} {
		r.write(broken)
		if line := r.reload("was not read again"); !strings.Contains(line, "handover") && what != "not YAML" {
			t.Errorf("%s: the log does not say what is wrong: %s", what, line)
		}
		r.wantList(what, before)
	}
	if err := os.WriteFile(r.file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if line := r.reload("was not read again"); !strings.Contains(line, "no setting in it") {
		t.Error(line)
	}
	r.wantList("the file was emptied", before)
	if err := errors.Join(os.Remove(r.file), syscall.Mkfifo(r.file, 0o600)); err != nil {
		t.Fatal(err)
	}
	if line := r.reload("was not read again"); !strings.Contains(line, "not a regular file") {
		t.Error(line)
	}
	r.wantList("the file is a pipe", before)
	if err := os.Remove(r.file); err != nil {
		t.Fatal(err)
	}

	r.write(`
handover:
  classes: {office: {policy: seamless}, new: {policy: saving}}
  pools: {campus: {prefix: 10.5.0.0/24, gateway: 10.5.0.1}}
  devices: {phone: {macs: ['02:00:00:00:00:01'], class: office, pool: campus}, watch: {macs: ['02:00:00:00:00:03'], class: new, pool: campus}}
qos:
  critical: {video: {rate: 5Mbit, match: {tcp_dst: "5002"}}, voice: {rate: 64kbit, match: {udp_dst: "5004"}}}
  classes: {web: {priority: 3, flows: [{ipv4_dst: 10.0.0.4, tcp_dst: 80}]}}
`)
	if line := r.reload("was read again"); !strings.Contains(line, "needs_a_restart=[]") {
		t.Error(line)
	}
	after := "made,api,seamless new,file,saving office,file,seamless campus,file made,api phone,file,seamless watch,file,saving made,api,\"3Mbit\" video,file,\"5Mbit\" voice,file,\"64kbit\" web,file"
	r.wantList("read again", after)
	if status, text := r.ask(http.MethodGet, "/config", ""); !strings.Contains(text, `"voice"`) || strings.Contains(text, `"backup"`) {
		t.Errorf("the configuration in force: %d %s", status, text)
	}

	r.write("handover: {enabled: false}\n")
	if line := r.reload("was read again"); !strings.Contains(line, "handover.enabled") {
		t.Error(line)
	}
	r.wantList("handover goes with a restart only", "made,api,seamless new,file,saving office,file,seamless campus,file made,api phone,file,seamless watch,file,saving made,api,\"3Mbit\"")
	r.signal(syscall.SIGTERM)
	r.ended()
}

// TestReloadTakesTokens checks that after SIGHUP the new token in the token file is accepted and
// the old one is not, and that a file without a token changes nothing.
func TestReloadTakesTokens(t *testing.T) {
	live.Test(t)
	t.Parallel()
	r := startReloading(t, "")
	status := func(token string) int {
		r.token = token
		code, _ := r.ask(http.MethodGet, "/status", "")
		return code
	}
	old, next := r.token, "the-second-token-of-this-test"
	r.useToken("short")
	r.reload("was not read again")
	if got := [2]int{status(old), status("short")}; got != [2]int{http.StatusOK, http.StatusUnauthorized} {
		t.Errorf("after a bad file: %v", got)
	}
	r.useToken(next)
	r.reload("was read again")
	if got := [2]int{status(old), status(next)}; got != [2]int{http.StatusUnauthorized, http.StatusOK} {
		t.Errorf("of the old and the new token: %v", got)
	}
	r.tokenFile = filepath.Join(t.TempDir(), "elsewhere")
	r.useToken("the-third-token-of-this-test")
	r.write("")
	text, err := os.ReadFile(r.file)
	if err != nil {
		t.Fatal(err)
	}
	named := strings.Replace(string(text), "api: {", "api: {token_file: "+r.tokenFile+", ", 1)
	if err := os.WriteFile(r.file, []byte(named), 0o600); err != nil {
		t.Fatal(err)
	}
	if line := r.reload("was read again"); !strings.Contains(line, "needs_a_restart=[]") {
		t.Error(line)
	}
	if got := [2]int{status(next), status("the-third-token-of-this-test")}; got != [2]int{http.StatusUnauthorized, http.StatusOK} {
		t.Errorf("of another token file: %v", got)
	}
	r.signal(syscall.SIGTERM)
	r.ended()
}

// outlives runs a program whose file has a log level and a number. It checks that SIGHUP applies
// the level, names the number, refuses a file with errors, and does not end the program.
func outlives(t *testing.T, runs, key, text string, command ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "program.yaml")
	write := func(level string, n int) {
		t.Helper()
		if err := os.WriteFile(file, fmt.Appendf(nil, text, level, n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("info", 10)
	p := launch(t, append(command, "--config", file)...)
	p.until(runs)
	write("debug", 20)
	p.signal(syscall.SIGHUP)
	if line := p.until("was read again"); !strings.Contains(line, "log_level=DEBUG") || !strings.Contains(line, "["+key+"]") {
		t.Error(line)
	}
	write("nonsense", 20)
	p.signal(syscall.SIGHUP)
	if line := p.until("was not read again"); !strings.Contains(line, "log.level") {
		t.Error(line)
	}
	p.signal(syscall.SIGTERM)
	p.ended()
}

// TestHangupLeavesTheAgent checks that SIGHUP does not end an agent, applies its log level, and
// names the other changes.
func TestHangupLeavesTheAgent(t *testing.T) {
	live.Test(t)
	t.Parallel()
	dir := t.TempDir()
	ca, err := pki.Init(dir, "ca", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(pki.Request{Role: pki.RoleAgent, Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if err := pair.Write(dir, "a"); err != nil {
		t.Fatal(err)
	}
	tls := fmt.Sprintf("{cert: %[1]s/a.crt, key: %[1]s/a.key, ca: %[1]s/ca.crt}", dir)
	outlives(t, "agent runs", "sessions.max", "log: {level: %s}\ncontrol: {listen: '127.0.0.1:0', tls: "+tls+"}\nsessions: {max: %d}\n", "agent")
}

// TestHangupLeavesTheMobile checks the same for the daemon of a mobile device.
func TestHangupLeavesTheMobile(t *testing.T) {
	live.Test(t)
	t.Parallel()
	dir := t.TempDir()
	outlives(t, "msg=running", "policy.signal_margin", "log: {level: %s}\nstate_dir: "+dir+"/state\nsocket: "+dir+"/mobile.sock\nvni: {name: vni0, mac: '02:00:00:00:00:09'}\ninterfaces: {none0: {}}\npolicy: {signal_margin: %d}\n", "mobile", "run")
}
