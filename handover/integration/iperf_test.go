package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"time"
)

// download is a TCP download by iperf3 at a limited rate, in intervals of 100 ms.
type download struct {
	w      *world
	cmd    *exec.Cmd
	out    bytes.Buffer
	server *exec.Cmd
}

// download starts one from the server to a host, for some seconds.
func (w *world) download(host string, megabits, seconds int) *download {
	w.t.Helper()
	d := &download{w: w}
	ctx := context.Background()
	d.server = w.lab.Host(w.domain.Server).Command(ctx, "iperf3", "-s", "-1")
	if err := d.server.Start(); err != nil {
		w.t.Skipf("iperf3: %v", err)
	}
	w.eventually("iperf3 listens", func() bool {
		return contains(w.run(w.domain.Server, "ss", "-Htln", "sport = :5201"), "5201")
	})
	d.cmd = w.lab.Host(host).Command(ctx, "iperf3", "-c", w.domain.ServerAddr.String(), "-R", "-J", "-i", "0.1",
		"-b", fmt.Sprintf("%dM", megabits), "-t", fmt.Sprint(seconds))
	d.cmd.Stdout = &d.out
	if err := d.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = d.server.Process.Kill()
		_ = d.server.Wait()
	})
	return d
}

// goodput is what a download has come to.
type goodput struct {
	rates       []float64 // Mbit/s of each 100 ms, in order
	retransmits int
	err         string
}

// wait waits for the end of a download.
func (d *download) wait(limit time.Duration) goodput {
	d.w.t.Helper()
	timer := time.AfterFunc(limit, func() { _ = d.cmd.Process.Kill() })
	err := d.cmd.Wait()
	timer.Stop()
	var report struct {
		Error     string `json:"error"`
		Intervals []struct {
			Sum struct {
				Rate    float64 `json:"bits_per_second"`
				Seconds float64 `json:"seconds"`
			} `json:"sum"`
		} `json:"intervals"`
		End struct {
			Sent struct {
				Retransmits int `json:"retransmits"`
			} `json:"sum_sent"`
		} `json:"end"`
	}
	if bad := json.Unmarshal(d.out.Bytes(), &report); bad != nil {
		d.w.t.Fatalf("iperf3: %v, %v: %s", err, bad, d.out.String())
	}
	g := goodput{retransmits: report.End.Sent.Retransmits, err: report.Error}
	for _, i := range report.Intervals {
		if i.Sum.Seconds > 0.05 { // the last one may be a rest
			g.rates = append(g.rates, i.Sum.Rate/1e6)
		}
	}
	if g.err == "" && err != nil {
		g.err = err.Error()
	}
	return g
}

// median and low are the middle of the rates and how many are below half of it;
// the first second is the connection's start.
func (g goodput) median() (median float64, low int, least float64) {
	if len(g.rates) < 20 {
		return 0, len(g.rates), 0
	}
	rates := slices.Clone(g.rates[10:])
	slices.Sort(rates)
	median = rates[len(rates)/2]
	for _, r := range rates {
		if r < median/2 {
			low++
		}
	}
	return median, low, rates[0]
}

func (g goodput) String() string {
	median, low, least := g.median()
	return fmt.Sprintf("median %.1f Mbit/s of %d intervals of 100 ms, least %.1f, %d below half; %d retransmits %s",
		median, len(g.rates), least, low, g.retransmits, g.err)
}
