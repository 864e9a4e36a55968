package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/sos"
)

// Options holds the options of the demo of SOS.
type Options struct {
	Out    io.Writer
	TTY    bool   // reports whether Out is a terminal, on which progress bars can move
	Binary string // path of sluice
	Size   int64  // bytes of the file
	Line   lab.WANOptions
	// Keep leaves the lab up after the downloads, until the context ends.
	Keep bool
}

// These are the demo's defaults: an intercontinental link, and a file that takes a while on it.
const (
	DefaultSize = 100e6
	DefaultRate = 300e6
	DefaultRTT  = 150 * time.Millisecond
	DefaultLoss = 0.0005
)

const (
	labName  = "demo"
	webPort  = 80
	fileName = "data.bin"
)

// ErrFailed means that the demo ran, but did not show what it promises.
var ErrFailed = errors.New("the demo failed")

// ErrStopped means that the demo was stopped before its end.
var ErrStopped = errors.New("the demo was stopped; its network has been removed")

// demo is one run of the demo.
type demo struct {
	Options
	dir   string
	lab   *lab.Lab
	parts *testbed.Deployment
	web   *testbed.WebServer
	sum   []byte
}

// Run runs the demo of SOS. It removes everything it has built, also after an error or when ctx
// ends.
func Run(ctx context.Context, o Options) error {
	d := &demo{Options: o}
	return perform(ctx, &d.dir, d.show, d.down)
}

// show builds the network, downloads the file and prints the comparison.
func (d *demo) show(ctx context.Context) error {
	if err := d.up(ctx); err != nil {
		return err
	}
	outcomes, err := d.compare(ctx)
	if err != nil {
		return err
	}
	if err := d.report(outcomes); err != nil {
		return err
	}
	if d.Keep {
		d.invite(ctx)
	}
	return nil
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.Out, format+"\n", args...) }

// up builds the network and starts server, controller and agents.
func (d *demo) up(ctx context.Context) (err error) {
	if err := lab.Sweep(ctx, lab.Options{}); err != nil {
		d.say("Left over from an earlier run: %v", err)
	}
	d.say("Building a network: client and server on two switches, between them a link of")
	d.say("%.0f Mbit/s with a round trip of %v that loses %.2f %% of its packets each way.", d.Line.Rate/1e6, d.Line.RTT, 100*max(d.Line.Loss, 0))
	if d.lab, err = lab.Up(ctx, lab.WAN(labName, d.Line), lab.Options{Ephemeral: true}); err != nil {
		return fmt.Errorf("build the network: %w", err)
	}
	served, logs := filepath.Join(d.dir, "served"), filepath.Join(d.dir, "logs")
	for _, dir := range []string{served, logs} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if d.sum, err = makeFile(filepath.Join(served, fileName), d.Size); err != nil {
		return fmt.Errorf("make the file: %w", err)
	}
	if d.web, err = testbed.StartWebServer(ctx, d.lab.Host("server"), served, logs, webPort); err != nil {
		return err
	}
	d.say("Starting the controller, and an agent at each side.")
	d.parts, err = testbed.Deploy(ctx, testbed.Options{Lab: d.lab, Binary: d.Binary, LogDir: logs})
	return err
}

// down removes everything that up has made, even if up did not finish.
func (d *demo) down(ctx context.Context) error {
	var errs []error
	if d.parts != nil {
		errs = append(errs, d.parts.Close())
	}
	if d.web != nil {
		d.web.Stop()
	}
	return errors.Join(append(errs, takeDown(ctx, d.lab))...)
}

// compare downloads the file directly and twice by the agents: the first time they do not know the
// path between them.
func (d *demo) compare(ctx context.Context) ([]outcome, error) {
	d.say("\nDownloading %.0f MB with curl:", float64(d.Size)/1e6)
	direct, err := d.download(ctx, "direct")
	if err != nil {
		return nil, err
	}
	if _, err := d.parts.Whitelist(ctx, d.lab.Host("server").Addr(), webPort, sos.Tuning{}); err != nil {
		return nil, err
	}
	if err := testbed.AwaitWarm(ctx, d.parts, "x", "y", time.Time{}); err != nil {
		return nil, err
	}
	outcomes := []outcome{direct}
	for i, name := range []string{"SOS", "again"} {
		carried, err := d.download(ctx, name)
		if err != nil {
			return nil, err
		}
		outcomes = append(outcomes, carried)
		if err := d.awaitEnded(ctx, i+1); err != nil {
			return nil, err
		}
	}
	return outcomes, nil
}

// awaitEnded waits until the given number of sessions have ended. It returns an error if the downloads
// were carried by another number of sessions.
func (d *demo) awaitEnded(ctx context.Context, want int) error {
	var sessions []sos.Record
	err := testbed.Poll(ctx, "the end of the session", func() (err error) {
		if sessions, err = d.parts.Sessions(ctx); err != nil {
			return err
		}
		for _, s := range sessions {
			if s.State != sos.StateEnded {
				return fmt.Errorf("session %s is %s", s.ID, s.State)
			}
		}
		return nil
	})
	if err == nil && len(sessions) != want {
		err = fmt.Errorf("%w: %w (%d sessions); the controller's last words:\n%s", ErrFailed, testbed.ErrNotCarried, len(sessions), d.parts.LastWords("controller"))
	}
	return err
}

// download downloads the file and collects what both ends saw.
func (d *demo) download(ctx context.Context, name string) (o outcome, err error) {
	o.name = name
	client, server := d.lab.Host("client"), d.lab.Host("server")
	file := filepath.Join(d.dir, fileName)
	bar := &progress{out: d.Out, tty: d.TTY, label: name, total: d.Size, started: time.Now()}
	url := fmt.Sprintf("http://%v:%d/%s", server.Addr(), webPort, fileName)
	if o.download, err = testbed.Curl(ctx, client, url, file, bar.update); err != nil {
		bar.abort()
		return o, err
	}
	bar.finish(o.download.Bytes, o.download.Total)
	if o.same, err = hasSum(file, d.sum); err != nil {
		return o, err
	}
	if o.peerMAC, err = testbed.Neighbour(ctx, client, server.Addr()); err != nil {
		return o, err
	}
	log, err := d.web.Accesses()
	if err != nil || len(log) == 0 {
		return o, errors.Join(err, errors.New("the server has logged nothing"))
	}
	o.access = log[len(log)-1]
	return o, os.Remove(file)
}

// report prints the comparison. It returns an error if it is not what the demo promises.
func (d *demo) report(outcomes []outcome) error {
	d.say("")
	if err := printReport(d.Out, d.Line.Rate, outcomes); err != nil {
		return err
	}
	if bad := faults(outcomes); len(bad) > 0 {
		return fmt.Errorf("%w: %s", ErrFailed, strings.Join(bad, "; "))
	}
	times := func(o outcome) float64 { return outcomes[0].download.Total.Seconds() / o.download.Total.Seconds() }
	d.say("\nSOS was %.1f times as fast the first time, when its agents did not know the path, and", times(outcomes[1]))
	d.say("%.1f times when they knew it. Neither client nor server was told anything, and neither", times(outcomes[2]))
	d.say("can tell: the server logged the client's own address and port, and the client's")
	d.say("connection is to the server's address, port and MAC address (%s).", macOf(d.lab.Host("server")))
	d.say(`
What to try next:
  sudo bin/sluice-lab demo --keep                      keep the network up and play in it
  sudo bin/sluice-lab demo --rtt 50ms --loss 0%        another link
  sudo bin/sluice-lab experiment run sos-peers --quick SOS beside hand-built proxies, with a report
  docs/tutorial.md                                     what just happened, step by step`)
	return nil
}

func macOf(h *lab.LiveHost) string {
	m := h.MAC()
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// invite prints how to use the network, and waits until ctx ends.
func (d *demo) invite(ctx context.Context) {
	env := fmt.Sprintf("SLUICE_TOKEN_FILE=%s", d.parts.TokenFile())
	d.say(`
The network stays up until you press Ctrl-C. In another terminal, as root:
  ip netns exec %[1]s curl -o /dev/null http://%[3]v/%[4]s
  ip netns exec %[2]s env %[5]s %[6]s sos sessions
  ip netns exec %[2]s env %[5]s %[6]s sos disable`,
		d.lab.Host("client").Namespace(), d.lab.Control().Namespace(), d.lab.Host("server").Addr(), fileName, env, d.Binary)
	<-ctx.Done()
	d.say("\nTaking the network down.")
}
