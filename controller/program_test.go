package controller

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/internal/logtest"
)

// program is the real controller, as a process of its own.
type program struct {
	cmd      *exec.Cmd
	log      *logtest.Log
	exited   chan struct{} // closed when it has ended; cmd.ProcessState is there then
	api      string
	switches net.Addr
	token    string
}

var startedLine = regexp.MustCompile(`controller runs.* api=(\S+) openflow=\[?([^\s\]]+)`)

// startProgram starts a controller on a data folder and returns without waiting for it.
func startProgram(t *testing.T, binary, dir string, set ...string) *program {
	t.Helper()
	p := &program{log: &logtest.Log{}, exited: make(chan struct{})}
	args := []string{"controller", "--set", "data_dir=" + dir, "--set", "api.listen=127.0.0.1:0", "--set", "openflow.listen=[127.0.0.1:0]", "--set", "network.discovery.interval=200ms", "--set", "network.discovery.timeout=1s"}
	for _, s := range set {
		args = append(args, "--set", s)
	}
	p.cmd = exec.Command(binary, args...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.start(t)
	return p
}

func (p *program) start(t *testing.T) {
	t.Helper()
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = p.cmd.Wait(); close(p.exited) }() // how it ended is in ProcessState
	t.Cleanup(func() { p.end(t, syscall.SIGKILL) })
}

// ready waits until the controller logs its addresses.
func (p *program) ready(t *testing.T, dir string) {
	t.Helper()
	var found []string
	eventually(t, "the controller runs", func() bool {
		if p.over() {
			t.Fatalf("the controller has ended with %v:\n%s", p.cmd.ProcessState, p.log)
		}
		found = startedLine.FindStringSubmatch(p.log.String())
		return found != nil
	})
	p.api = "http://" + found[1]
	var err error
	if p.switches, err = net.ResolveTCPAddr("tcp", found[2]); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "token"))
	if err != nil {
		t.Fatal(err)
	}
	p.token = strings.TrimSpace(string(b))
}

func (p *program) over() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// end sends a signal and waits for the end.
func (p *program) end(t *testing.T, s syscall.Signal) {
	t.Helper()
	if p.over() {
		return
	}
	if err := p.cmd.Process.Signal(s); err != nil && !p.over() {
		t.Error(err)
	}
	p.ends(t)
}

// ends waits for the process to end.
func (p *program) ends(t *testing.T) {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(time.Minute):
		_ = p.cmd.Process.Kill()
		<-p.exited
		t.Fatalf("the controller does not end:\n%s", p.log)
	}
}

// ask sends a request; the status is zero if nobody answers.
func (p *program) ask(t *testing.T, method, path, body string) (status int, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, p.api+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+p.token)
	req.Header.Set("Content-Type", "application/json")
	req.Close = true
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(b)
}

// read reads something that must exist.
func (p *program) read(t *testing.T, path string, out any) {
	t.Helper()
	status, text := p.ask(t, http.MethodGet, path, "")
	if status != http.StatusOK {
		t.Fatalf("%s: %d %s\n%s", path, status, text, p.log)
	}
	if err := json.Unmarshal([]byte(text), out); err != nil {
		t.Fatal(err)
	}
}

// tells waits for an event of a kind, including those that are kept from before.
func (p *program) tells(t *testing.T, kind string) {
	t.Helper()
	c, err := client.New(client.Options{Server: p.api, Token: p.token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	seen := errors.New("seen")
	err = c.Events(ctx, client.EventsRequest{Resume: true, Kinds: []string{kind}}, func(e client.Event) error {
		if e.Kind == kind {
			return seen
		}
		return nil
	})
	if !errors.Is(err, seen) {
		t.Errorf("no event %s: %v", kind, err)
	}
}

// calm fails if the log shows a stack.
func (p *program) calm(t *testing.T) {
	t.Helper()
	for _, word := range []string{"panic", "goroutine ", "fatal error"} {
		if strings.Contains(p.log.String(), word) {
			t.Errorf("the log shows %q:\n%s", word, p.log)
		}
	}
}
