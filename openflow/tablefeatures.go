package openflow

import (
	"fmt"
	"slices"
	"strings"
)

// TableProperty is the number of a table property on the wire. Odd numbers are
// the same property for the table-miss entry.
type TableProperty uint16

// The table properties.
const (
	TableInstructions      TableProperty = 0
	TableInstructionsMiss  TableProperty = 1
	TableNextTables        TableProperty = 2
	TableNextTablesMiss    TableProperty = 3
	TableWriteActions      TableProperty = 4
	TableWriteActionsMiss  TableProperty = 5
	TableApplyActions      TableProperty = 6
	TableApplyActionsMiss  TableProperty = 7
	TableMatch             TableProperty = 8
	TableWildcards         TableProperty = 10
	TableWriteSetField     TableProperty = 12
	TableWriteSetFieldMiss TableProperty = 13
	TableApplySetField     TableProperty = 14
	TableApplySetFieldMiss TableProperty = 15
	TableExperimenter      TableProperty = 0xfffe
	TableExperimenterMiss  TableProperty = 0xffff
)

// content is the kind of list that a table property has.
type content uint8

const (
	contentRaw    content = iota // of an experimenter, or of a later version
	contentIDs                   // instructions or actions
	contentTables                // one byte each
	contentFields                // OXM headers
)

type tablePropertyInfo struct {
	name    string
	content content
}

// tableProperties describes every table property.
var tableProperties = map[TableProperty]tablePropertyInfo{
	TableInstructions:      {"instructions", contentIDs},
	TableInstructionsMiss:  {"instructions_miss", contentIDs},
	TableNextTables:        {"next_tables", contentTables},
	TableNextTablesMiss:    {"next_tables_miss", contentTables},
	TableWriteActions:      {"write_actions", contentIDs},
	TableWriteActionsMiss:  {"write_actions_miss", contentIDs},
	TableApplyActions:      {"apply_actions", contentIDs},
	TableApplyActionsMiss:  {"apply_actions_miss", contentIDs},
	TableMatch:             {"match", contentFields},
	TableWildcards:         {"wildcards", contentFields},
	TableWriteSetField:     {"write_setfield", contentFields},
	TableWriteSetFieldMiss: {"write_setfield_miss", contentFields},
	TableApplySetField:     {"apply_setfield", contentFields},
	TableApplySetFieldMiss: {"apply_setfield_miss", contentFields},
	TableExperimenter:      {"experimenter", contentRaw},
	TableExperimenterMiss:  {"experimenter_miss", contentRaw},
}

// String returns the property's name.
func (p TableProperty) String() string {
	if info, ok := tableProperties[p]; ok {
		return info.name
	}
	return fmt.Sprintf("property(%d)", uint16(p))
}

// FeatureID names an instruction or action in a table property.
type FeatureID struct {
	Type         uint16
	Experimenter uint32 // when Type is 0xffff
}

// FieldID names a field in a table property: its header in the upper 32 bits
// and, for class 0xffff, its experimenter in the lower.
type FieldID uint64

// NewFieldID returns the identifier of a field of the table. masked says that the field may be
// masked.
func NewFieldID(f Field, masked bool) FieldID {
	h := appendOXM(nil, &OXM{Field: f, Masked: masked})
	id := FieldID(be.Uint32(h)) << 32
	if exp := fields[f].exp; exp != 0 {
		id |= FieldID(exp)
	}
	return id
}

// Field returns the field, if this package knows it.
func (id FieldID) Field() (Field, bool) {
	return lookupField(uint16(id>>48), uint8(id>>41)&0x7f, uint32(id))
}

// Masked reports whether the field may be masked.
func (id FieldID) Masked() bool { return id>>40&1 != 0 }

func (id FieldID) experimenter() bool { return id>>48 == classExperimenter }

// String returns the field's name, with "/mask" when it may be masked.
func (id FieldID) String() string {
	s := fmt.Sprintf("oxm(%08x)", uint32(id>>32))
	if f, ok := id.Field(); ok {
		s = f.Name()
	}
	if id.Masked() {
		s += "/mask"
	}
	return s
}

// TableFeature is one property of a table. Its type determines which list is used.
type TableFeature struct {
	Type   TableProperty
	IDs    []FeatureID // instructions, actions
	Tables []uint8     // tables one can go to
	Fields []FieldID   // fields to match, to leave out, or to set
	Raw    []byte      // any other property, not decoded
}

// TableFeatures describes the capabilities of a flow table.
type TableFeatures struct {
	Table                        uint8
	Name                         string // at most 31 bytes
	MetadataMatch, MetadataWrite uint64 // bits that can be matched and written
	Config                       uint32
	MaxEntries                   uint32
	Features                     []TableFeature
}

// Fields returns the fields that the property lists and this package knows.
func (t *TableFeatures) Fields(p TableProperty) []Field {
	var known []Field
	for i := range t.Features {
		if t.Features[i].Type != p {
			continue
		}
		for _, id := range t.Features[i].Fields {
			if f, ok := id.Field(); ok {
				known = append(known, f)
			}
		}
	}
	return known
}

// CanMatch reports whether entries of the table can match the field.
func (t *TableFeatures) CanMatch(f Field) bool { return slices.Contains(t.Fields(TableMatch), f) }

// CanSet reports whether apply-actions of the table can set the field.
func (t *TableFeatures) CanSet(f Field) bool { return slices.Contains(t.Fields(TableApplySetField), f) }

const tableFeaturesHeader = 64

func (t *TableFeatures) append(b []byte) ([]byte, error) {
	start := len(b)
	b = pad(append(b, 0, 0, t.Table), 5)
	b = putString(b, t.Name, 32)
	b = put64(put64(b, t.MetadataMatch), t.MetadataWrite)
	b = put32(put32(b, t.Config), t.MaxEntries)
	for i := range t.Features {
		b = t.Features[i].append(b)
	}
	setLen16(b, start, 0)
	return b, nil
}

func (f *TableFeature) append(b []byte) []byte {
	start := len(b)
	b = pad(put16(b, uint16(f.Type)), 2)
	switch tableProperties[f.Type].content {
	case contentIDs:
		for _, id := range f.IDs {
			b = put16(b, id.Type)
			if id.Type == 0xffff {
				b = put32(append(b, 0, 8), id.Experimenter)
			} else {
				b = append(b, 0, 4)
			}
		}
	case contentTables:
		b = append(b, f.Tables...)
	case contentFields:
		for _, id := range f.Fields {
			b = put32(b, uint32(id>>32))
			if id.experimenter() {
				b = put32(b, uint32(id))
			}
		}
	case contentRaw:
		b = append(b, f.Raw...)
	}
	setLen16(b, start, 2)
	return padTo8(b, start)
}

func (t *TableFeatures) decode(b []byte) error {
	*t = TableFeatures{
		Table: b[2], Name: cString(b[8:40]), MetadataMatch: be.Uint64(b[40:]), MetadataWrite: be.Uint64(b[48:]),
		Config: be.Uint32(b[56:]), MaxEntries: be.Uint32(b[60:]),
	}
	it := iterate(b[tableFeaturesHeader:], &propertyShape)
	for it.step() {
		var f TableFeature
		if err := f.decode(it.elem); err != nil {
			return fmt.Errorf("table %d, property at byte %d: %w", t.Table, it.at, err)
		}
		t.Features = append(t.Features, f)
	}
	return it.err
}

func (f *TableFeature) decode(b []byte) (err error) {
	f.Type = TableProperty(be.Uint16(b))
	b = b[4:]
	switch tableProperties[f.Type].content {
	case contentIDs:
		f.IDs, err = parseFeatureIDs(b)
	case contentTables:
		f.Tables = b
	case contentFields:
		f.Fields, err = parseFieldIDs(b)
	case contentRaw:
		f.Raw = b
	}
	return err
}

func parseFeatureIDs(b []byte) ([]FeatureID, error) {
	var ids []FeatureID
	it := iterate(b, &featureIDShape)
	for it.step() {
		id := FeatureID{Type: be.Uint16(it.elem)}
		if id.Type == 0xffff {
			if len(it.elem) < 8 {
				return nil, tooShort("experimenter id", len(it.elem), 8)
			}
			id.Experimenter = be.Uint32(it.elem[4:])
		}
		ids = append(ids, id)
	}
	return ids, it.err
}

// parseFieldIDs reads OXM headers. Their length field counts a value that does not follow them
// here, so the TLV iterator cannot read them.
func parseFieldIDs(b []byte) ([]FieldID, error) {
	var ids []FieldID
	for len(b) > 0 {
		size := 4
		if len(b) >= 2 && be.Uint16(b) == classExperimenter {
			size = 8
		}
		if len(b) < size {
			return nil, tooShort("field id", len(b), size)
		}
		id := FieldID(be.Uint32(b)) << 32
		if size == 8 {
			id |= FieldID(be.Uint32(b[4:]))
		}
		ids = append(ids, id)
		b = b[size:]
	}
	return ids, nil
}

// String describes the table.
func (t TableFeatures) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "table=%d name=%q metadata match=%#x write=%#x config=%#x max_entries=%d",
		t.Table, t.Name, t.MetadataMatch, t.MetadataWrite, t.Config, t.MaxEntries)
	for _, f := range t.Features {
		fmt.Fprintf(&s, " %v={%s}", f.Type, f.list())
	}
	return s.String()
}

func (f *TableFeature) list() string {
	var names []string
	instructions := f.Type <= TableInstructionsMiss
	for _, id := range f.IDs {
		switch {
		case id.Type == 0xffff:
			names = append(names, fmt.Sprintf("experimenter(%#x)", id.Experimenter))
		case instructions:
			names = append(names, InstructionType(id.Type).String())
		default:
			names = append(names, ActionType(id.Type).String())
		}
	}
	for _, id := range f.Tables {
		names = append(names, fmt.Sprint(id))
	}
	for _, id := range f.Fields {
		names = append(names, id.String())
	}
	if len(f.Raw) > 0 {
		names = append(names, fmt.Sprintf("%x", f.Raw))
	}
	return strings.Join(names, ",")
}

// TableFeaturesRequest asks for a TableFeaturesReply. A request with entries also asks the switch
// to adopt these features.
type TableFeaturesRequest []TableFeatures

// TableFeaturesReply answers a TableFeaturesRequest.
type TableFeaturesReply []TableFeatures

func appendTables(b []byte, tables []TableFeatures) (_ []byte, err error) {
	for i := range tables {
		if b, err = tables[i].append(b); err != nil {
			return b, err
		}
	}
	return b, nil
}

func parseTables(b []byte) ([]TableFeatures, error) {
	var tables []TableFeatures
	it := iterate(b, &tableFeaturesShape)
	for it.step() {
		var t TableFeatures
		if err := t.decode(it.elem); err != nil {
			return nil, err
		}
		tables = append(tables, t)
	}
	return tables, it.err
}

// MultipartType returns MultipartTableFeatures.
func (*TableFeaturesRequest) MultipartType() MultipartType      { return MultipartTableFeatures }
func (r *TableFeaturesRequest) append(b []byte) ([]byte, error) { return appendTables(b, *r) }

func (r *TableFeaturesRequest) decode(b []byte) (err error) {
	*r, err = parseTables(b)
	return err
}

// String describes the body.
func (r *TableFeaturesRequest) String() string { return list(*r) }

// MultipartType returns MultipartTableFeatures.
func (*TableFeaturesReply) MultipartType() MultipartType      { return MultipartTableFeatures }
func (r *TableFeaturesReply) append(b []byte) ([]byte, error) { return appendTables(b, *r) }

func (r *TableFeaturesReply) decode(b []byte) (err error) {
	*r, err = parseTables(b)
	return err
}

// String describes the body.
func (r *TableFeaturesReply) String() string { return list(*r) }
