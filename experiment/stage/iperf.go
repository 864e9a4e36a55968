package stage

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Place is where a program can be started: a host of the lab.
type Place interface {
	Command(ctx context.Context, name string, args ...string) *exec.Cmd
}

// Transfer is one iperf3 run from a client to a server.
type Transfer struct {
	Client, Server Place
	To             string // what the client dials: the server, or a proxy before it
	Port           int
	Streams        int
	Time           time.Duration // measured
	Omit           time.Duration // before it, not measured
	UDPRate        string        // iperf3's notation; empty for TCP
	Congestion     string        // of the client's socket; empty for the system's
}

// Goodput is what arrived, as the receiver counted it.
type Goodput struct {
	BitsPerSecond float64
	Streams       []float64 // bits per second of each stream
	Retransmits   int       // of the client's own TCP
}

// Mbit is the goodput in Mbit/s.
func (g Goodput) Mbit() float64 { return g.BitsPerSecond / 1e6 }

// Run measures one transfer. The server lives as long as the run.
func (t Transfer) Run(ctx context.Context) (Goodput, error) {
	ctx, cancel := context.WithTimeout(ctx, t.Omit+t.Time+60*time.Second)
	defer cancel()
	stop, err := t.serve(ctx)
	if err != nil {
		return Goodput{}, err
	}
	defer stop()
	cmd := t.Client.Command(ctx, "iperf3", t.clientArgs()...)
	out, err := cmd.Output()
	parsed, parseErr := parseIperf(out)
	switch {
	case parseErr != nil && err != nil:
		return Goodput{}, fmt.Errorf("iperf3 to %s: %w", t.To, errors.Join(err, parseErr))
	case parseErr != nil:
		return Goodput{}, fmt.Errorf("iperf3 to %s: %w", t.To, parseErr)
	}
	return parsed, nil
}

func (t Transfer) clientArgs() []string {
	args := []string{
		"-c", t.To, "-p", strconv.Itoa(t.Port), "-J", "--connect-timeout", "15000",
		"-t", seconds(t.Time), "-O", seconds(t.Omit), "-P", strconv.Itoa(max(t.Streams, 1)),
	}
	if t.UDPRate != "" {
		args = append(args, "-u", "-b", t.UDPRate)
	}
	if t.Congestion != "" {
		args = append(args, "-C", t.Congestion)
	}
	return args
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d.Round(time.Second) / time.Second)) }

// serve starts the server and returns when it listens.
func (t Transfer) serve(ctx context.Context) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := t.Server.Command(ctx, "iperf3", "-s", "-p", strconv.Itoa(t.Port), "--forceflush")
	cmd.WaitDelay = 5 * time.Second
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		cancel()
		return nil, fmt.Errorf("iperf3 server: %w", err)
	}
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("iperf3 server: %w", err)
	}
	done := make(chan struct{})
	stop = func() { cancel(); <-done }
	listening := make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "Server listening") {
				close(listening)
				break
			}
		}
		// Its report is not needed, but a full pipe would stop it.
		_, _ = io.Copy(io.Discard, stdout)
		_ = cmd.Wait() // killed by Stop; the client's report says how it went
	}()
	select {
	case <-listening:
		return stop, nil
	case <-done:
		stop()
		return nil, fmt.Errorf("iperf3 server ended at once; is port %d taken?", t.Port)
	case <-ctx.Done():
		stop()
		return nil, fmt.Errorf("iperf3 server: %w", context.Cause(ctx))
	}
}

// parseIperf reads the client's JSON report.
func parseIperf(text []byte) (Goodput, error) {
	type sum struct {
		BitsPerSecond float64 `json:"bits_per_second"`
		Retransmits   int     `json:"retransmits"`
		LostPercent   float64 `json:"lost_percent"`
	}
	var report struct {
		Error string `json:"error"`
		End   struct {
			Streams []struct {
				Receiver sum `json:"receiver"`
			} `json:"streams"`
			Sent     sum  `json:"sum_sent"`
			Received *sum `json:"sum_received"`
			UDP      *sum `json:"sum"`
		} `json:"end"`
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return Goodput{}, fmt.Errorf("read iperf3's report: %w", err)
	}
	if report.Error != "" {
		return Goodput{}, errors.New(report.Error)
	}
	g := Goodput{Retransmits: report.End.Sent.Retransmits}
	for _, s := range report.End.Streams {
		g.Streams = append(g.Streams, s.Receiver.BitsPerSecond)
	}
	switch {
	case report.End.Received != nil && report.End.Received.BitsPerSecond > 0:
		g.BitsPerSecond = report.End.Received.BitsPerSecond
	case report.End.UDP != nil:
		// iperf3 3.12 counts what the sender sent, and the receiver's loss.
		g.BitsPerSecond = report.End.UDP.BitsPerSecond * (1 - report.End.UDP.LostPercent/100)
	default:
		return Goodput{}, errors.New("iperf3's report says nothing of what the receiver got")
	}
	return g, nil
}
