package soak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/handover"
	"github.com/sluice-net/sluice/services/sos"
)

// fleet holds all programs of Sluice in the lab.
type fleet struct {
	*testbed.Deployment
	lifetime context.Context // the context of every program, also of those started again
	lab      *lab.Lab
	binary   string
	logs     string

	mobile sync.RWMutex // locked for writing while the device's daemon is down
	device *testbed.Mobile

	classifiers map[string]*testbed.Daemon
	restarts    map[string]int // number of restarts of each program with a log of its own
}

// These are the ports of the loads.
const (
	webPort      = 80
	longPort     = 9000
	criticalPort = 5001
	classPort    = 5002
	plainPort    = 5003
)

const deviceName = "phone"

// deploy starts the programs and configures the controller.
func deploy(ctx context.Context, l *lab.Lab, binary, logs string) (f *fleet, err error) {
	network, err := networkConfig(l)
	if err != nil {
		return nil, err
	}
	f = &fleet{lifetime: ctx, lab: l, binary: binary, logs: logs, classifiers: map[string]*testbed.Daemon{}, restarts: map[string]int{}}
	f.Deployment, err = testbed.Deploy(ctx, testbed.Options{Lab: l, Binary: binary, LogDir: logs, Network: network, Services: servicesConfig(l)})
	if err != nil {
		return nil, err
	}
	if err := f.start(ctx); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

func (f *fleet) start(ctx context.Context) error {
	if err := f.awaitLinks(ctx); err != nil {
		return err
	}
	for _, sw := range f.switches(partQoS) {
		if err := f.startClassifier(sw); err != nil {
			return err
		}
	}
	if err := f.PutClass(ctx, "moving", handover.ClassSpec{Policy: "seamless"}); err != nil {
		return err
	}
	var err error
	f.device, err = testbed.StartMobile(ctx, testbed.MobileOptions{
		Host: f.lab.Host("dev1"), Binary: f.binary, LogDir: f.logs, Home: f, Device: deviceName, Class: "moving",
		Interfaces: deviceInterfaces,
	})
	if err != nil {
		return err
	}
	for _, port := range []uint16{webPort, longPort} {
		if _, err := f.Whitelist(ctx, f.lab.Host("web").Addr(), port, sos.Tuning{}); err != nil {
			return err
		}
	}
	return errors.Join(f.putClass(ctx), f.putCritical(ctx))
}

var deviceInterfaces = []string{"eth0", "eth1"}

// awaitLinks waits until the controller knows every link between switches.
func (f *fleet) awaitLinks(ctx context.Context) error {
	t, want := f.lab.Topology(), 0
	isSwitch := map[string]bool{}
	for _, s := range t.Switches {
		isSwitch[s.Name] = true
	}
	for _, l := range t.Links {
		if isSwitch[l.A.Node] && isSwitch[l.B.Node] {
			want += 2
		}
	}
	return testbed.Poll(ctx, "the links", func() error {
		n, err := f.Links(ctx)
		if err == nil && n < want {
			err = fmt.Errorf("%d of %d are known", n, want)
		}
		return err
	})
}

// switches returns the names of a part's switches.
func (f *fleet) switches(p part) (names []string) {
	for _, s := range f.lab.Topology().Switches {
		if partOf(s.Name) == p {
			names = append(names, s.Name)
		}
	}
	return names
}

func (f *fleet) startClassifier(sw string) error {
	live := f.lab.Switch(sw)
	d, err := testbed.StartDaemon(f.lifetime, live, filepath.Join(f.logs, "classifier-"+sw+".log"), f.binary, "classifier", "--database", live.Database())
	if err != nil {
		return err
	}
	f.classifiers[sw] = d
	return nil
}

// keepLog renames the log of a program that is about to be started again.
func (f *fleet) keepLog(name string) error {
	f.restarts[name]++
	file := filepath.Join(f.logs, name+".log")
	return os.Rename(file, fmt.Sprintf("%s.%d", file, f.restarts[name]))
}

// outage is how long a killed program stays away.
const outage = 500 * time.Millisecond

// kill is one way to do harm to a program. do kills the program, starts it again, and returns when
// everything is usable again.
type kill struct {
	program program
	name    string
	part    part
	do      func(context.Context) error
}

// kills returns all kills.
func (f *fleet) kills() []kill {
	all := []kill{
		{controller, "", partAll, f.killController},
		{device, deviceName, partHandover, f.killDevice},
	}
	for _, host := range []string{"x", "y"} {
		all = append(all, kill{agent, host, partSOS, func(ctx context.Context) error { return f.killAgent(ctx, host) }})
	}
	for _, s := range f.lab.Topology().Switches {
		all = append(all, kill{vswitchd, s.Name, partOf(s.Name), func(ctx context.Context) error { return f.killSwitch(ctx, s.Name) }})
	}
	for _, sw := range f.switches(partQoS)[:1] {
		all = append(all, kill{classifier, sw, partQoS, func(ctx context.Context) error { return f.killClassifier(ctx, sw) }})
	}
	return all
}

func (f *fleet) killController(ctx context.Context) error {
	f.Controller().Kill()
	if err := errors.Join(tasks.Sleep(ctx, outage), f.keepLog("controller")); err != nil {
		return err
	}
	return errors.Join(f.StartController(f.lifetime), f.Ready(ctx), f.awaitLinks(ctx))
}

func (f *fleet) killAgent(ctx context.Context, host string) error {
	f.Agent(host).Kill()
	if err := errors.Join(tasks.Sleep(ctx, outage), f.keepLog(host)); err != nil {
		return err
	}
	return errors.Join(f.StartAgent(f.lifetime, host), f.Ready(ctx))
}

func (f *fleet) killDevice(ctx context.Context) error {
	f.mobile.Lock()
	defer f.mobile.Unlock()
	f.device.Kill()
	if err := errors.Join(tasks.Sleep(ctx, outage), f.keepLog("mobile-"+deviceName)); err != nil {
		return err
	}
	return f.device.Restart(f.lifetime)
}

// runningDevice returns the device once its daemon runs.
func (f *fleet) runningDevice() *testbed.Mobile {
	f.mobile.RLock()
	defer f.mobile.RUnlock()
	return f.device
}

func (f *fleet) killSwitch(ctx context.Context, name string) error {
	sw := f.lab.Switch(name)
	if err := errors.Join(sw.Kill(ctx), tasks.Sleep(ctx, outage)); err != nil {
		return err
	}
	return errors.Join(sw.Start(ctx), f.Ready(ctx), f.awaitLinks(ctx))
}

func (f *fleet) killClassifier(ctx context.Context, sw string) error {
	f.classifiers[sw].Kill()
	if err := errors.Join(tasks.Sleep(ctx, outage), f.keepLog("classifier-"+sw)); err != nil {
		return err
	}
	return f.startClassifier(sw)
}

// close ends every program.
func (f *fleet) close() error {
	var err error
	if f.device != nil {
		err = f.device.Close()
	}
	for _, c := range f.classifiers {
		c.Stop()
	}
	return errors.Join(err, f.Deployment.Close())
}
