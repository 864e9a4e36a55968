package demo

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

// NamesOptions holds the options of the demo of names.
type NamesOptions struct {
	Out    io.Writer
	Binary string // path of sluice
	// Keep leaves the lab up afterwards, until the context ends.
	Keep bool
}

const (
	namesLab = "demo-names"
	// namesRate is the rate of sending in bit/s, and namesChunk the bytes of a chunk.
	namesRate, namesChunk = 4e6, 16 << 10
	// namesLater is the number of bytes that are sent to the phone while it is out of reach.
	namesLater = 1 << 20
	// namesWithin bounds the wait for the last bytes.
	namesWithin = time.Minute
)

// namesDemo is one run of the demo.
type namesDemo struct {
	NamesOptions
	dir      string
	lab      *lab.Lab
	parts    []*testbed.Deployment // a controller in each domain
	programs []*testbed.Daemon
	phone    *testbed.Daemon   // the phone's host
	names    map[string]string // names by the programs that have them
}

// RunNames runs the demo of names. It removes everything it has built, also after an error or when
// ctx ends.
func RunNames(ctx context.Context, o NamesOptions) error {
	d := &namesDemo{NamesOptions: o, names: map[string]string{}}
	return perform(ctx, &d.dir, d.show, d.down)
}

func (d *namesDemo) say(format string, args ...any) { fmt.Fprintf(d.Out, format+"\n", args...) }

func (d *namesDemo) file(name string) string { return filepath.Join(d.dir, name) }

func (d *namesDemo) show(ctx context.Context) error {
	if err := d.up(ctx); err != nil {
		return err
	}
	transfers, cancel := context.WithCancel(ctx)
	defer cancel() // after an error this ends the programs that still run
	if err := d.follow(transfers); err != nil {
		return err
	}
	if err := d.wait(transfers); err != nil {
		return err
	}
	if err := d.compress(transfers); err != nil {
		return err
	}
	d.say(`
What to try next:
  sudo bin/sluice-lab demo names --keep   keep it up, and use the names yourself
  docs/how-to/names.md                    the same on machines of yours
  docs/topics/chunks.md                   how it works`)
	if d.Keep {
		d.invite(ctx)
	}
	return nil
}

// These are the addresses of namesNetwork, in the subnets of its two domains.
const (
	namesHomeNet, namesOtherNet       = "10.1.0.0/16", "10.2.0.0/16"
	namesHomeRouter, namesOtherRouter = "10.1.0.254", "10.2.0.254"
	namesDesk, namesDepot, namesKiosk = "10.1.0.1", "10.1.0.2", "10.2.0.1"
	namesPhone, namesPhoneElsewhere   = "10.1.0.3", "10.2.0.3"
	namesHome, namesOther             = "home", "other"
)

// namesNetwork returns two domains, each with a controller and a subnet of its own, between which a
// router forwards IP packets. At home are three switches in a row, with a desk at the first, a depot
// at the second and a phone at the third. The other domain has a switch with a kiosk; the phone can be
// there, too.
func namesNetwork() lab.Topology {
	host := func(name, address, router, rest string) lab.Host {
		return lab.Host{
			Name: name, Addresses: []netip.Prefix{netip.MustParsePrefix(address + "/16")},
			Routes: []lab.Route{{To: netip.MustParsePrefix(rest), Via: netip.MustParseAddr(router)}},
		}
	}
	t := lab.Topology{
		Name: namesLab, Controllers: []lab.Controller{{Name: namesHome}, {Name: namesOther}},
		Hosts: []lab.Host{
			host("desk", namesDesk, namesHomeRouter, namesOtherNet), host("depot", namesDepot, namesHomeRouter, namesOtherNet),
			host("phone", namesPhone, namesHomeRouter, namesOtherNet), host("kiosk", namesKiosk, namesOtherRouter, namesHomeNet),
			{Name: "router", Router: true},
		},
	}
	for _, s := range []string{"s1", "s2", "s3"} {
		t.Switches = append(t.Switches, lab.Switch{Name: s, Controllers: []string{namesHome}})
	}
	t.Switches = append(t.Switches, lab.Switch{Name: "s4", Controllers: []string{namesOther}})
	params := delayline.Params{Rate: 100e6, Delay: time.Millisecond}
	for _, l := range [][2]string{{"desk", "s1"}, {"depot", "s2"}, {"phone", "s3"}, {"phone", "s4"}, {"s1", "s2"}, {"s2", "s3"}, {"kiosk", "s4"}} {
		t.Links = append(t.Links, lab.Both(l[0], l[1], params))
	}
	for _, l := range [][2]string{{namesHomeRouter, "s1"}, {namesOtherRouter, "s4"}} {
		link := lab.Both("router", l[1], params)
		link.A.Addresses = []netip.Prefix{netip.MustParsePrefix(l[0] + "/16")}
		t.Links = append(t.Links, link)
	}
	return t
}

// up builds the network and starts everything in it.
func (d *namesDemo) up(ctx context.Context) (err error) {
	if err := lab.Sweep(ctx, lab.Options{}); err != nil {
		d.say("Left over from an earlier run: %v", err)
	}
	d.say("Building two domains, each with a controller, a name service and addresses of its own. At home are three")
	d.say("switches in a row, with a desk, a depot and a phone. A router joins them to the other domain.")
	if d.lab, err = lab.Up(ctx, namesNetwork(), lab.Options{Ephemeral: true}); err != nil {
		return fmt.Errorf("build the network: %w", err)
	}
	for _, domain := range []string{namesHome, namesOther} {
		parts, err := testbed.Deploy(ctx, testbed.Options{Lab: d.lab, Binary: d.Binary, LogDir: d.dir, Controller: domain})
		if err != nil {
			return err
		}
		d.parts = append(d.parts, parts)
	}
	d.say("Making names, and starting the name services, and at the depot a storage node and a function.")
	for _, whose := range []string{"phone", "storage", "function"} {
		out, err := exec.CommandContext(ctx, d.Binary, "mf", "name", "new", d.file(whose+".key")).Output()
		if err != nil {
			return fmt.Errorf("make a name: %w", err)
		}
		d.names[whose] = strings.TrimSpace(string(out))
	}
	for domain, host := range map[string]string{namesHome: "depot", namesOther: "kiosk"} {
		_, err := d.start(ctx, host, "gnrs", "--dir", d.file("names-"+domain), "--self", domain, "--replicas", "2",
			"--domain", namesHome+"="+namesDepot+":5001", "--domain", namesOther+"="+namesKiosk+":5001")
		if err != nil {
			return err
		}
	}
	if _, err := d.startHost(ctx, "desk", namesDepot, "--storage", d.names["storage"]); err != nil {
		return err
	}
	if _, err := d.startHost(ctx, "depot", namesDepot); err != nil {
		return err
	}
	if err := d.startPhone(ctx); err != nil {
		return err
	}
	if _, err := d.start(ctx, "depot", "storage", "--name-key", d.file("storage.key"), "--dir", d.file("custody")); err != nil {
		return err
	}
	_, err = d.start(ctx, "depot", "compute", "--name-key", d.file("function.key"), "--builtin", "compress")
	return err
}

// start runs "sluice mf" at a host until the demo ends.
func (d *namesDemo) start(ctx context.Context, host string, args ...string) (*testbed.Daemon, error) {
	p, err := testbed.StartDaemon(ctx, d.lab.Host(host), d.file(args[0]+"-"+host+".log"), d.Binary, append([]string{"mf"}, args...)...)
	if err == nil {
		d.programs = append(d.programs, p)
	}
	return p, err
}

// startHost runs a host of names that uses the name service at an address, and waits until it accepts
// applications.
func (d *namesDemo) startHost(ctx context.Context, host, service string, more ...string) (*testbed.Daemon, error) {
	p, err := d.start(ctx, host, append([]string{"host", "--interface", "eth0", "--udp", "5028", "--names", service + ":5001"}, more...)...)
	if err != nil {
		return nil, err
	}
	return p, d.ready(ctx, host)
}

// startPhone runs the phone's host, which uses the name service of the other domain.
func (d *namesDemo) startPhone(ctx context.Context) (err error) {
	d.phone, err = d.startHost(ctx, "phone", namesKiosk)
	return err
}

// ready waits until a host of names accepts applications.
func (d *namesDemo) ready(ctx context.Context, host string) error {
	return testbed.Poll(ctx, "sluice mf host at "+host, func() error {
		return d.lab.Host(host).Do(func() error { _, err := os.Stat(hostapi.DefaultSocket()); return err })
	})
}

// down removes everything that up has made, even if up did not finish.
func (d *namesDemo) down(ctx context.Context) error {
	var errs []error
	for i := len(d.programs) - 1; i >= 0; i-- {
		d.programs[i].Stop()
	}
	for _, p := range d.parts {
		errs = append(errs, p.Close())
	}
	return errors.Join(append(errs, takeDown(ctx, d.lab))...)
}

// act is an event that happens to the phone while the phone receives chunks.
type act struct {
	text  string
	do    func(context.Context) error
	lasts time.Duration
}

func (d *namesDemo) acts() []act {
	moves := func(to string) func(context.Context) error {
		return func(ctx context.Context) error { return d.lab.MoveLink(ctx, "phone-s3", to) }
	}
	stays := func(context.Context) error { return nil }
	return []act{
		{"is at the third switch", stays, 2 * time.Second},
		{"moves to the second", moves("s2"), 2 * time.Second},
		{"moves to the first", moves("s1"), 2 * time.Second},
		{"changes to the other domain, by UDP", func(ctx context.Context) error { return d.change(ctx, false) }, 4 * time.Second},
		{"comes back", func(ctx context.Context) error { return d.change(ctx, true) }, 3 * time.Second},
	}
}

// change moves the phone to the other domain, where it has another address, or back home.
func (d *namesDemo) change(ctx context.Context, home bool) error {
	leaves, comes, address, router, rest := "eth0", "eth1", namesPhoneElsewhere, namesOtherRouter, namesHomeNet
	if home {
		leaves, comes, address, router, rest = "eth1", "eth0", namesPhone, namesHomeRouter, namesOtherNet
	}
	if err := d.lab.SetLink(ctx, "phone-s3", home); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"-4", "addr", "flush", "dev", leaves},
		{"-4", "route", "flush", "dev", leaves},
		{"addr", "add", address + "/16", "dev", comes},
		{"route", "replace", rest, "via", router, "dev", comes},
	} {
		if out, err := d.lab.Host("phone").Command(ctx, "ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %q: %w: %s", args, err, out)
		}
	}
	return nil
}

// follow sends to the phone while the events happen.
func (d *namesDemo) follow(ctx context.Context) error {
	lasts := 2 * time.Second // sending continues a little longer than the events
	for _, a := range d.acts() {
		lasts += a.lasts
	}
	want := make([]byte, int(namesRate/8*lasts.Seconds()))
	_, _ = rand.Read(want)
	recv, send, err := d.transfer(ctx, &paced{r: bytes.NewReader(want), rate: namesRate / 8}, "--chunk", fmt.Sprint(namesChunk))
	if err != nil {
		return err
	}
	d.say("\nThe desk sends %.0f Mbit/s to the name %s, wherever that is. The phone, meanwhile:", namesRate/1e6, d.names["phone"])
	w := tabwriter.NewWriter(d.Out, 0, 0, 3, ' ', 0)
	defer w.Flush() // also after an error
	fmt.Fprintln(w, "  it\tfor\tarrived\tfirst after")
	for _, a := range d.acts() {
		before, began := d.arrived(), time.Now()
		if err := a.do(ctx); err != nil {
			return err
		}
		then, first := d.arrived(), "-"
		for time.Since(began) < a.lasts {
			if tasks.Sleep(ctx, 10*time.Millisecond) != nil {
				return context.Cause(ctx)
			}
			if first == "-" && d.arrived() > then {
				first = fmt.Sprintf("%d ms", time.Since(began).Milliseconds())
			}
		}
		fmt.Fprintf(w, "  %s\t%.1f s\t%d kB\t%s\n", a.text, time.Since(began).Seconds(), (d.arrived()-before)/1000, first)
	}
	if err := errors.Join(w.Flush(), send(), recv()); err != nil {
		return err
	}
	if err := d.equal(want); err != nil {
		return err
	}
	d.say("All %d kB have arrived, once and in order: the SHA-256 of what was sent and of what has come are equal.", len(want)/1000)
	return nil
}

// equal returns an error unless the phone has received what was sent.
func (d *namesDemo) equal(want []byte) error {
	got, err := os.ReadFile(d.file("received"))
	if err != nil {
		return err
	}
	if sha256.Sum256(got) != sha256.Sum256(want) {
		return fmt.Errorf("%w: %d bytes have arrived that are not the %d that were sent", ErrFailed, len(got), len(want))
	}
	return nil
}

// wait sends to the phone while it is switched off.
func (d *namesDemo) wait(ctx context.Context) error {
	d.phone.Stop()
	if err := d.lab.SetLink(ctx, "phone-s3", false); err != nil {
		return err
	}
	want := make([]byte, namesLater)
	_, _ = rand.Read(want)
	began := time.Now()
	send, err := d.send(ctx, bytes.NewReader(want), "--delay-tolerant", "--chunk", fmt.Sprint(namesChunk))
	if err != nil {
		return err
	}
	if err := send(); err != nil {
		return err
	}
	kept, err := d.kept(ctx)
	if err != nil {
		return err
	}
	d.say("\nThe phone is switched off. The desk sends it %d kB that may wait, and is told after %d ms that the depot keeps them: %d chunks.", len(want)/1000, time.Since(began).Milliseconds(), kept)
	began = time.Now()
	if err := d.lab.SetLink(ctx, "phone-s3", true); err != nil {
		return err
	}
	if err := d.startPhone(ctx); err != nil {
		return err
	}
	recv, err := d.receive(ctx)
	if err != nil {
		return err
	}
	if err := recv(); err != nil {
		return err
	}
	d.say("%.1f s after the phone is switched on again it has all of them.", time.Since(began).Seconds())
	return d.equal(want)
}

// kept returns the number of chunks that the storage node holds for the phone.
func (d *namesDemo) kept(ctx context.Context) (int, error) {
	all, err := testbed.KeptChunks(ctx, d.Binary, d.file("custody"))
	if err != nil {
		return 0, err
	}
	n, found := all[d.names["phone"]]
	if !found {
		return 0, fmt.Errorf("%w: the depot keeps nothing for the phone", ErrFailed)
	}
	return n, nil
}

// compress sends a text by the function that compresses it.
func (d *namesDemo) compress(ctx context.Context) error {
	text := strings.Repeat("What is sent by a function arrives as what that makes of it.\n", 5000)
	recv, send, err := d.transfer(ctx, strings.NewReader(text), "--through", d.names["function"])
	if err != nil {
		return err
	}
	if err := errors.Join(send(), recv()); err != nil {
		return err
	}
	small, err := os.Open(d.file("received"))
	if err != nil {
		return err
	}
	defer small.Close()
	z, err := gzip.NewReader(small)
	if err != nil {
		return fmt.Errorf("%w: what has come by the function: %w", ErrFailed, err)
	}
	got, err := io.ReadAll(z)
	if err != nil || string(got) != text {
		return fmt.Errorf("%w: %d bytes are in what has come by the function, of %d: %w", ErrFailed, len(got), len(text), err)
	}
	d.say("\nA text of %d kB goes by a function at the depot, and arrives in %d bytes: compressed, and the same inside.", len(text)/1000, d.arrived())
	return nil
}

// invite prints how to use the names, and waits until ctx ends.
func (d *namesDemo) invite(ctx context.Context) {
	desk, phone := d.lab.Host("desk").Namespace(), d.lab.Host("phone").Namespace()
	d.say(`
The network stays up until you press Ctrl-C. In other terminals, as root:
  ip netns exec %[1]s %[2]s mf recv --name-key %[3]s --follow
  ip netns exec %[4]s %[2]s mf send %[5]s < /etc/hostname
  ip netns exec %[4]s %[2]s mf ping %[5]s`,
		phone, d.Binary, d.file("phone.key"), desk, d.names["phone"])
	<-ctx.Done()
	d.say("\nTaking the network down.")
}
