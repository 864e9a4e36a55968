package ingress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// childEnv makes the test binary run a gateway instead of tests, for tests that need one in its
// own process. It holds the gateway's data address.
const childEnv = "INGRESS_TEST_CHILD"

// childMain runs a gateway with one channel until it is stopped or killed. When the channel is
// live, it prints one line with the process that reads it.
func childMain() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := childGateway(ctx, netip.MustParseAddr(os.Getenv(childEnv))); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func childGateway(ctx context.Context, data netip.Addr) error {
	cfg := Config{
		Log: slog.New(slog.DiscardHandler), Listen: "127.0.0.1:0", Data: data, Public: netip.MustParseAddrPort("127.0.0.1:0"), MaxChannels: 1,
	}
	if data.IsLoopback() {
		cfg.openOutput = (&sinks{by: map[uint16]*sink{}}).open
	}
	g, err := New(cfg)
	if err != nil {
		return err
	}
	defer g.Close()
	s, err := parseSource(patternSource)
	if err != nil {
		return err
	}
	spec := waits("news", 7)
	spec.Source = patternSource
	if err := g.setChannel(spec, s); err != nil {
		return err
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for stderr := false; ctx.Err() == nil; <-tick.C {
		if s := g.channel("news").state(); s.OnAir == gatewayapi.OnAirLive && !stderr {
			fmt.Println(s.Producer)
			stderr = true
		}
	}
	return nil
}

// begin starts a gateway's process, and returns the process that reads its channel.
func begin(t *testing.T, cmd *exec.Cmd, data netip.Addr) (ffmpeg int) {
	t.Helper()
	cmd.Env = append(os.Environ(), childEnv+"="+data.String())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return processOf(t, strings.TrimSpace(line))
}

// gone waits for the end of a process.
func gone(t *testing.T, pid int) {
	t.Helper()
	until(t, "the end of ffmpeg", func() bool {
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(state), ") Z ") || errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
	})
}

// TestChildEndsWithGateway checks that the child processes of a killed gateway end.
func TestChildEndsWithGateway(t *testing.T) {
	t.Parallel()
	needFFmpeg(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	ffmpeg := begin(t, cmd, netip.MustParseAddr("127.0.0.1"))
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	gone(t, ffmpeg)
}

// TestGatewayInNetwork checks that a channel is sent in a network without an address for
// channels, and that a gateway that ends leaves nothing behind.
func TestGatewayInNetwork(t *testing.T) {
	needFFmpeg(t)
	gw, peer := newHosts(t)
	taken := capture(t, peer)
	cmd := gw.Command(t.Context(), os.Args[0])
	ffmpeg := begin(t, cmd, gwAddr)
	wantNeighbour(t, gw, true)
	var out []sent
	for len(out) < 150 {
		frame := taken(t, mediaAddr)
		out = append(out, sent{b: frame[42:]})
	}
	checkHouseFormat(t, out)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	gone(t, ffmpeg)
	wantNeighbour(t, gw, false)
}
