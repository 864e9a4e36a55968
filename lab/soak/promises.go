package soak

import (
	"context"
	"fmt"
	"net/http"

	"github.com/sluice-net/sluice/services/qos/classes"
	"github.com/sluice-net/sluice/services/qos/critical"
	"github.com/sluice-net/sluice/services/qos/match"
)

// These are the names and rates of a class and of critical flows, in bit/s, and the paths of the
// API that declare them.
const (
	className    = "soak-class"
	criticalName = "soak-critical"
	classRate    = 10_000_000
	criticalRate = 10_000_000

	classesPath  = "/api/v1/qos/classes"
	criticalPath = "/api/v1/qos/critical"
)

// putClass makes the class for the connections of one pair of hosts.
func (f *fleet) putClass(ctx context.Context) error {
	one, two := match.Text(f.lab.Host("class1").Addr().String()), match.Text(f.lab.Host("class2").Addr().String())
	port := match.Text(fmt.Sprint(classPort))
	return f.Do(ctx, http.MethodPost, classesPath, classes.ClassSpec{
		Name: className, Priority: "0", MinRate: match.Text(fmt.Sprint(classRate)),
		Flows: []match.Flow{{IPv4Src: one, IPv4Dst: two, TCPDst: port}, {IPv4Src: two, IPv4Dst: one, TCPSrc: port}},
	}, nil)
}

func (f *fleet) dropClass(ctx context.Context) error {
	return f.Do(ctx, http.MethodDelete, classesPath+"/"+className, nil, nil)
}

// putCritical defines the flows to a port as critical.
func (f *fleet) putCritical(ctx context.Context) error {
	return f.Do(ctx, http.MethodPost, criticalPath, critical.Spec{
		Name: criticalName, Rate: criticalRate, IdleTimeout: "5s",
		Match: match.Flow{IPv4Dst: match.Text(f.lab.Host("critical2").Addr().String()), TCPDst: match.Text(fmt.Sprint(criticalPort))},
	}, nil)
}

func (f *fleet) dropCritical(ctx context.Context) error {
	return f.Do(ctx, http.MethodDelete, criticalPath+"/"+criticalName, nil, nil)
}
