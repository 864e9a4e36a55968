package ovsdb

import "github.com/ovn-kubernetes/libovsdb/model"

// database is the name of Open vSwitch's database.
const database = "Open_vSwitch"

// The tables, with the columns that this package reads or writes.

type rootRow struct {
	UUID string `ovsdb:"_uuid"`
	Next int    `ovsdb:"next_cfg"`
	Done int    `ovsdb:"cur_cfg"`
}

type bridgeRow struct {
	UUID         string   `ovsdb:"_uuid"`
	Name         string   `ovsdb:"name"`
	DatapathID   *string  `ovsdb:"datapath_id"`
	DatapathType string   `ovsdb:"datapath_type"`
	Ports        []string `ovsdb:"ports"`
	SFlow        *string  `ovsdb:"sflow"`
}

type portRow struct {
	UUID       string   `ovsdb:"_uuid"`
	Name       string   `ovsdb:"name"`
	Interfaces []string `ovsdb:"interfaces"`
	QoS        *string  `ovsdb:"qos"`
}

type interfaceRow struct {
	UUID   string `ovsdb:"_uuid"`
	Name   string `ovsdb:"name"`
	Number *int   `ovsdb:"ofport"`
	Speed  *int   `ovsdb:"link_speed"`
}

type qosRow struct {
	UUID   string            `ovsdb:"_uuid"`
	Type   string            `ovsdb:"type"`
	Queues map[int]string    `ovsdb:"queues"`
	Config map[string]string `ovsdb:"other_config"`
	IDs    map[string]string `ovsdb:"external_ids"`
}

type queueRow struct {
	UUID   string            `ovsdb:"_uuid"`
	DSCP   *int              `ovsdb:"dscp"`
	Config map[string]string `ovsdb:"other_config"`
	IDs    map[string]string `ovsdb:"external_ids"`
}

type sflowRow struct {
	UUID     string            `ovsdb:"_uuid"`
	Targets  []string          `ovsdb:"targets"`
	Agent    *string           `ovsdb:"agent"`
	Header   *int              `ovsdb:"header"`
	Polling  *int              `ovsdb:"polling"`
	Sampling *int              `ovsdb:"sampling"`
	IDs      map[string]string `ovsdb:"external_ids"`
}

func schema() (model.ClientDBModel, error) {
	return model.NewClientDBModel(database, map[string]model.Model{
		"Open_vSwitch": &rootRow{}, "Bridge": &bridgeRow{}, "Port": &portRow{}, "Interface": &interfaceRow{},
		"QoS": &qosRow{}, "Queue": &queueRow{}, "sFlow": &sflowRow{},
	})
}
