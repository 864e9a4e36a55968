package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// Place is a host of the lab, or another place, at which programs can be started.
type Place interface {
	Command(ctx context.Context, name string, args ...string) *exec.Cmd
}

// Transfer describes one run of iperf3 from a client to a server.
type Transfer struct {
	Client, Server Place
	To             string // address that the client dials: that of the server, or of a proxy before it
	Port           int
	Streams        int
	Time           time.Duration // time that is measured
	Omit           time.Duration // time before it that is not measured
	UDPRate        string        // in iperf3's notation; empty means TCP
	Congestion     string        // congestion control of the client's socket; empty means the system's
}

// Goodput is the goodput as the receiver counted it.
type Goodput struct {
	BitsPerSecond float64
	Streams       []float64 // bits per second of each stream
	Retransmits   int       // retransmissions of the client's own TCP
	// ClientCPU and ServerCPU are the CPU usages of iperf3 itself, in percent of one core.
	ClientCPU, ServerCPU float64
}

// Mbit returns the goodput in Mbit/s.
func (g Goodput) Mbit() float64 { return g.BitsPerSecond / 1e6 }

// Run measures one transfer. It starts the server and stops it at the end.
func (t Transfer) Run(ctx context.Context) (Goodput, error) {
	ctx, cancel := context.WithTimeout(ctx, t.Omit+t.Time+60*time.Second)
	defer cancel()
	server, err := t.serve(ctx)
	if err != nil {
		return Goodput{}, err
	}
	defer server.Stop()
	cmd := t.Client.Command(ctx, "iperf3", t.clientArgs()...)
	out, err := cmd.Output()
	parsed, parseErr := t.parse(out)
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
		"-c", t.To, "-p", strconv.Itoa(t.Port), "-J", "--get-server-output", "--connect-timeout", "15000",
		"-t", seconds(t.Omit + t.Time), "-P", strconv.Itoa(max(t.Streams, 1)),
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
func (t Transfer) serve(ctx context.Context) (*Daemon, error) {
	d, err := StartDaemon(ctx, t.Server, os.DevNull, "iperf3", "-s", "-J", "-p", strconv.Itoa(t.Port))
	if err != nil {
		return nil, err
	}
	if err := WaitListening(ctx, t.Server, uint16(t.Port)); err != nil {
		d.Stop()
		return nil, fmt.Errorf("iperf3 server: %w", err)
	}
	return d, nil
}

// iperfInterval is what the server has received in about a second.
type iperfInterval struct {
	Start   float64 `json:"start"` // seconds since the server's first interval
	Seconds float64 `json:"seconds"`
	Bytes   float64 `json:"bytes"`
}

// parse parses the client's JSON report, which contains the server's. It counts what the server
// received, by the server's clock, because the client's counters say little if there are proxies
// between. It counts only the seconds that lie wholly between the warm-up and the end of the
// client's time: after that the server still receives what proxies and agents hold, and the
// client's final message.
func (t Transfer) parse(text []byte) (Goodput, error) {
	var report struct {
		Error string `json:"error"`
		End   struct {
			Sent struct {
				Retransmits int `json:"retransmits"`
			} `json:"sum_sent"`
			CPU struct {
				Client float64 `json:"host_total"`
				Server float64 `json:"remote_total"`
			} `json:"cpu_utilization_percent"`
		} `json:"end"`
		Server struct {
			Error     string `json:"error"`
			Intervals []struct {
				Sum     iperfInterval   `json:"sum"`
				Streams []iperfInterval `json:"streams"`
			} `json:"intervals"`
		} `json:"server_output_json"`
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return Goodput{}, fmt.Errorf("read iperf3's report: %w", err)
	}
	for _, text := range []string{report.Error, report.Server.Error} {
		if text != "" {
			return Goodput{}, errors.New(text)
		}
	}
	g := Goodput{Retransmits: report.End.Sent.Retransmits, ClientCPU: report.End.CPU.Client, ServerCPU: report.End.CPU.Server}
	var all mean
	var streams []mean
	for _, i := range report.Server.Intervals {
		if i.Sum.Start < t.Omit.Seconds()-slack || i.Sum.Start+i.Sum.Seconds > (t.Omit+t.Time).Seconds()+slack {
			continue
		}
		all.add(i.Sum)
		if streams == nil {
			streams = make([]mean, len(i.Streams))
		}
		for j := range min(len(streams), len(i.Streams)) {
			streams[j].add(i.Streams[j])
		}
	}
	if all.seconds == 0 {
		return Goodput{}, errors.New("iperf3's report says nothing of what the server got")
	}
	g.BitsPerSecond = all.bitsPerSecond()
	for _, m := range streams {
		g.Streams = append(g.Streams, m.bitsPerSecond())
	}
	return g, nil
}

// slack is how much earlier or later than a whole second iperf3's interval may end.
const slack = 0.1

type mean struct{ bytes, seconds float64 }

func (m *mean) add(i iperfInterval) {
	m.bytes += i.Bytes
	m.seconds += i.Seconds
}

func (m *mean) bitsPerSecond() float64 { return 8 * m.bytes / m.seconds }
