package testbed

import (
	"context"
	"path/filepath"

	"github.com/sluice-net/sluice/lab"
)

// StartClassifiers runs a classifier beside each switch of a lab; stop ends them.
func StartClassifiers(ctx context.Context, l *lab.Lab, binary, logDir string) (stop func(), err error) {
	var all []*Daemon
	stop = func() {
		for _, d := range all {
			d.Stop()
		}
	}
	for _, s := range l.Topology().Switches {
		sw := l.Switch(s.Name)
		d, err := StartDaemon(ctx, sw, filepath.Join(logDir, "classifier-"+s.Name+".log"), binary, "classifier", "--database", sw.Database())
		if err != nil {
			stop()
			return nil, err
		}
		all = append(all, d)
	}
	return stop, nil
}
