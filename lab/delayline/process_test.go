package delayline

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// waitFor polls a condition.
func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		<-tick.C
	}
}

func TestStartSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	socket, log := filepath.Join(dir, "s"), filepath.Join(dir, "log")
	end := End{Interface: "nope0", Namespace: "/run/netns/sluice-no-such-namespace"}
	for _, c := range []struct {
		says   string
		config Config
	}{
		{"no control socket", Config{}},
		{"no name", Config{Socket: socket, Links: []Link{{}}}},
		{"occurs twice", Config{Socket: socket, Links: []Link{{Name: "a"}, {Name: "a"}}}},
		{"loss", Config{Socket: socket, Links: []Link{{Name: "a", AtoB: Params{Loss: 2}}}}},
		{"no-such-namespace", Config{Socket: socket, Links: []Link{{Name: "a", A: end, B: end}}}},
		{"interface name", Config{Socket: socket, Links: []Link{{Name: "a", A: End{Interface: "much-too-long-for-linux"}}}}},
	} {
		pid, err := Start(testContext(t), c.config, log)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("started as %d with error %v, want %q", pid, err, c.says)
		}
	}
}

// TestProcess runs a delay line without links, and checks that its control socket answers and that
// it ends at a signal.
func TestProcess(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	pid, err := Start(testContext(t), Config{Socket: socket}, filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	client := Dial(socket)
	if state, err := client.State(testContext(t)); err != nil || len(state) != 0 {
		t.Errorf("state %v, %v", state, err)
	}
	if err := client.Set(testContext(t), "wan", &Params{}, nil); err == nil || !strings.Contains(err.Error(), `no link "wan"`) {
		t.Errorf("a link that is not there: %v", err)
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is open to others: %v %v", info.Mode(), err)
	}
	if err := unix.Kill(pid, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the process to end", func() bool { return unix.Kill(pid, 0) != nil })
	if _, err := client.State(testContext(t)); err == nil {
		t.Error("a process that has ended answers")
	}
}

func TestServerSurvivesGarbage(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	s, err := NewServer(Config{Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	for _, text := range []string{"", "\n", "garbage\n", "{}\n", `{"op":"explode"}` + "\n", strings.Repeat("x", 100_000) + "\n"} {
		talk(t, socket, text)
	}
	if _, err := Dial(socket).State(testContext(t)); err != nil {
		t.Errorf("after garbage: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// talk sends text to the control socket and closes the connection.
func talk(t *testing.T, socket, text string) {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Write([]byte(text)) // The server may close the connection before it has read everything.
	_ = conn.Close()
}
