package ovsdb

import (
	"context"
	"fmt"
	"time"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// session is one connection. After it has ended, a new session is created.
type session struct {
	client client.Client
	dirty  chan struct{} // receives a value when a row has changed
}

func dial(ctx context.Context, o Options) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	db, err := schema()
	if err != nil {
		return nil, err
	}
	options := []client.Option{client.WithEndpoint(o.Target)}
	if o.TLS != nil {
		options = append(options, client.WithTLSConfig(o.TLS))
	}
	lib, err := client.NewOVSDBClient(db, options...)
	if err != nil {
		return nil, err
	}
	if err := lib.Connect(ctx); err != nil {
		return nil, err
	}
	s := &session{client: lib, dirty: make(chan struct{}, 1)}
	touch := func(string, model.Model) { s.touch() }
	lib.Cache().AddEventHandler(&cache.EventHandlerFuncs{
		AddFunc: touch, DeleteFunc: touch, UpdateFunc: func(string, model.Model, model.Model) { s.touch() },
	})
	if err := s.monitor(ctx); err != nil {
		lib.Close()
		return nil, err
	}
	return s, nil
}

// monitor subscribes to the columns that this package reads, and no others, because statistics
// change every few seconds.
func (s *session) monitor(ctx context.Context) error {
	root, bridge, port, face, qos, queue, sflow := &rootRow{}, &bridgeRow{}, &portRow{}, &interfaceRow{}, &qosRow{}, &queueRow{}, &sflowRow{}
	_, err := s.client.Monitor(ctx, s.client.NewMonitor(
		client.WithTable(root, &root.Next, &root.Done),
		client.WithTable(bridge, &bridge.Name, &bridge.DatapathID, &bridge.DatapathType, &bridge.Ports, &bridge.SFlow),
		client.WithTable(port, &port.Name, &port.Interfaces, &port.QoS),
		client.WithTable(face, &face.Name, &face.Number, &face.Speed),
		client.WithTable(qos, &qos.Type, &qos.Queues, &qos.Config, &qos.IDs),
		client.WithTable(queue, &queue.DSCP, &queue.Config, &queue.IDs),
		client.WithTable(sflow, &sflow.Targets, &sflow.Agent, &sflow.Header, &sflow.Polling, &sflow.Sampling, &sflow.IDs),
	))
	return err
}

func (s *session) touch() {
	select {
	case s.dirty <- struct{}{}:
	default:
	}
}

func (s *session) close() { s.client.Close() }

// read returns the present state. Tables are read one after the other and may change in between.
// A table is read before the tables that refer to it, so that no referenced row looks
// unreferenced. The number of the last applied change is read first.
func (s *session) read(ctx context.Context) (*State, error) {
	var r rows
	for _, list := range []any{&r.roots, &r.sflow, &r.queues, &r.qos, &r.ports, &r.interfaces, &r.bridges} {
		if err := s.client.List(ctx, list); err != nil {
			return nil, err
		}
	}
	return r.state(), nil
}

// watch reports new states until the connection or ctx ends.
func (s *session) watch(ctx context.Context, report func(*State)) error {
	gone := s.client.DisconnectNotify()
	probe := time.NewTicker(probeInterval)
	defer probe.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-gone:
			return ErrDown
		case <-probe.C:
			if err := s.probe(ctx); err != nil {
				return err
			}
		case <-s.dirty:
			state, err := s.read(ctx)
			if err != nil {
				return err
			}
			report(state)
		}
	}
}

func (s *session) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return s.client.Echo(ctx)
}

// transact runs operations as one transaction, and returns an error if one of them fails.
func (s *session) transact(ctx context.Context, ops []ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	results, err := s.client.Transact(ctx, ops...)
	if err != nil {
		return nil, err
	}
	if _, err := ovsdb.CheckOperationResults(results, ops); err != nil {
		return nil, fmt.Errorf("refused by the database: %w", err)
	}
	return results, nil
}
