package openflow

import "fmt"

// ErrorType is the group that an error belongs to.
type ErrorType uint16

// The error types of OpenFlow 1.3.
const (
	ErrorTypeHelloFailed         ErrorType = 0
	ErrorTypeBadRequest          ErrorType = 1
	ErrorTypeBadAction           ErrorType = 2
	ErrorTypeBadInstruction      ErrorType = 3
	ErrorTypeBadMatch            ErrorType = 4
	ErrorTypeFlowModFailed       ErrorType = 5
	ErrorTypeGroupModFailed      ErrorType = 6
	ErrorTypePortModFailed       ErrorType = 7
	ErrorTypeTableModFailed      ErrorType = 8
	ErrorTypeQueueOpFailed       ErrorType = 9
	ErrorTypeSwitchConfigFailed  ErrorType = 10
	ErrorTypeRoleRequestFailed   ErrorType = 11
	ErrorTypeMeterModFailed      ErrorType = 12
	ErrorTypeTableFeaturesFailed ErrorType = 13
	ErrorTypeExperimenter        ErrorType = 0xffff
)

// ErrorCode names one error: its type in the upper 16 bits and the code within
// the type in the lower.
type ErrorCode uint32

// NewErrorCode joins type and code.
func NewErrorCode(t ErrorType, code uint16) ErrorCode {
	return ErrorCode(uint32(t)<<16 | uint32(code))
}

// Type returns the error's type.
func (c ErrorCode) Type() ErrorType { return ErrorType(c >> 16) }

// Code returns the code within the type.
func (c ErrorCode) Code() uint16 { return uint16(c) }

// Codes with which callers compare errors. NewErrorCode makes the other codes of the table.
const (
	HelloIncompatible      ErrorCode = 0x0000_0000
	BadRequestVersion      ErrorCode = 0x0001_0000
	BadRequestType         ErrorCode = 0x0001_0001
	BadRequestMultipart    ErrorCode = 0x0001_0002
	BadRequestExperimenter ErrorCode = 0x0001_0003
	BadRequestExpType      ErrorCode = 0x0001_0004
	BadRequestPermission   ErrorCode = 0x0001_0005
	BadRequestLength       ErrorCode = 0x0001_0006
	BadRequestBuffer       ErrorCode = 0x0001_0008
	BadRequestIsSlave      ErrorCode = 0x0001_000a
	BadRequestPort         ErrorCode = 0x0001_000b
	BadActionSetType       ErrorCode = 0x0002_000d
	BadMatchPrerequisite   ErrorCode = 0x0004_0009
	FlowModTableFull       ErrorCode = 0x0005_0001
	FlowModBadTable        ErrorCode = 0x0005_0002
	FlowModOverlap         ErrorCode = 0x0005_0003
	GroupModExists         ErrorCode = 0x0006_0000
	GroupModUnknown        ErrorCode = 0x0006_0008
	RoleRequestStale       ErrorCode = 0x000b_0000
	MeterModExists         ErrorCode = 0x000c_0001
	MeterModUnknown        ErrorCode = 0x000c_0003
)

// Codes of errors about bundles. They are sent with the experimenter ExperimenterONF.
const (
	BundleBadID              ErrorCode = 0xffff_0000 | 2302
	BundleExists             ErrorCode = 0xffff_0000 | 2303
	BundleMessageUnsupported ErrorCode = 0xffff_0000 | 2310
	BundleMessageFailed      ErrorCode = 0xffff_0000 | 2313
	BundleTimeout            ErrorCode = 0xffff_0000 | 2314
)

type errorInfo struct {
	name  string   // of the type
	codes []string // by number; "" if the specification defines no such code
}

// errorTable describes every error of OpenFlow 1.3, in the specification's names.
var errorTable = map[ErrorType]errorInfo{
	ErrorTypeHelloFailed: {"OFPET_HELLO_FAILED", []string{"OFPHFC_INCOMPATIBLE", "OFPHFC_EPERM"}},
	ErrorTypeBadRequest: {"OFPET_BAD_REQUEST", []string{
		"OFPBRC_BAD_VERSION", "OFPBRC_BAD_TYPE", "OFPBRC_BAD_MULTIPART", "OFPBRC_BAD_EXPERIMENTER",
		"OFPBRC_BAD_EXP_TYPE", "OFPBRC_EPERM", "OFPBRC_BAD_LEN", "OFPBRC_BUFFER_EMPTY",
		"OFPBRC_BUFFER_UNKNOWN", "OFPBRC_BAD_TABLE_ID", "OFPBRC_IS_SLAVE", "OFPBRC_BAD_PORT",
		"OFPBRC_BAD_PACKET", "OFPBRC_MULTIPART_BUFFER_OVERFLOW",
	}},
	ErrorTypeBadAction: {"OFPET_BAD_ACTION", []string{
		"OFPBAC_BAD_TYPE", "OFPBAC_BAD_LEN", "OFPBAC_BAD_EXPERIMENTER", "OFPBAC_BAD_EXP_TYPE",
		"OFPBAC_BAD_OUT_PORT", "OFPBAC_BAD_ARGUMENT", "OFPBAC_EPERM", "OFPBAC_TOO_MANY",
		"OFPBAC_BAD_QUEUE", "OFPBAC_BAD_OUT_GROUP", "OFPBAC_MATCH_INCONSISTENT", "OFPBAC_UNSUPPORTED_ORDER",
		"OFPBAC_BAD_TAG", "OFPBAC_BAD_SET_TYPE", "OFPBAC_BAD_SET_LEN", "OFPBAC_BAD_SET_ARGUMENT",
	}},
	ErrorTypeBadInstruction: {"OFPET_BAD_INSTRUCTION", []string{
		"OFPBIC_UNKNOWN_INST", "OFPBIC_UNSUP_INST", "OFPBIC_BAD_TABLE_ID", "OFPBIC_UNSUP_METADATA",
		"OFPBIC_UNSUP_METADATA_MASK", "OFPBIC_BAD_EXPERIMENTER", "OFPBIC_BAD_EXP_TYPE", "OFPBIC_BAD_LEN",
		"OFPBIC_EPERM", "OFPBIC_DUP_INST",
	}},
	ErrorTypeBadMatch: {"OFPET_BAD_MATCH", []string{
		"OFPBMC_BAD_TYPE", "OFPBMC_BAD_LEN", "OFPBMC_BAD_TAG", "OFPBMC_BAD_DL_ADDR_MASK",
		"OFPBMC_BAD_NW_ADDR_MASK", "OFPBMC_BAD_WILDCARDS", "OFPBMC_BAD_FIELD", "OFPBMC_BAD_VALUE",
		"OFPBMC_BAD_MASK", "OFPBMC_BAD_PREREQ", "OFPBMC_DUP_FIELD", "OFPBMC_EPERM",
	}},
	ErrorTypeFlowModFailed: {"OFPET_FLOW_MOD_FAILED", []string{
		"OFPFMFC_UNKNOWN", "OFPFMFC_TABLE_FULL", "OFPFMFC_BAD_TABLE_ID", "OFPFMFC_OVERLAP",
		"OFPFMFC_EPERM", "OFPFMFC_BAD_TIMEOUT", "OFPFMFC_BAD_COMMAND", "OFPFMFC_BAD_FLAGS",
	}},
	ErrorTypeGroupModFailed: {"OFPET_GROUP_MOD_FAILED", []string{
		"OFPGMFC_GROUP_EXISTS", "OFPGMFC_INVALID_GROUP", "OFPGMFC_WEIGHT_UNSUPPORTED", "OFPGMFC_OUT_OF_GROUPS",
		"OFPGMFC_OUT_OF_BUCKETS", "OFPGMFC_CHAINING_UNSUPPORTED", "OFPGMFC_WATCH_UNSUPPORTED", "OFPGMFC_LOOP",
		"OFPGMFC_UNKNOWN_GROUP", "OFPGMFC_CHAINED_GROUP", "OFPGMFC_BAD_TYPE", "OFPGMFC_BAD_COMMAND",
		"OFPGMFC_BAD_BUCKET", "OFPGMFC_BAD_WATCH", "OFPGMFC_EPERM",
	}},
	ErrorTypePortModFailed: {"OFPET_PORT_MOD_FAILED", []string{
		"OFPPMFC_BAD_PORT", "OFPPMFC_BAD_HW_ADDR", "OFPPMFC_BAD_CONFIG", "OFPPMFC_BAD_ADVERTISE", "OFPPMFC_EPERM",
	}},
	ErrorTypeTableModFailed:     {"OFPET_TABLE_MOD_FAILED", []string{"OFPTMFC_BAD_TABLE", "OFPTMFC_BAD_CONFIG", "OFPTMFC_EPERM"}},
	ErrorTypeQueueOpFailed:      {"OFPET_QUEUE_OP_FAILED", []string{"OFPQOFC_BAD_PORT", "OFPQOFC_BAD_QUEUE", "OFPQOFC_EPERM"}},
	ErrorTypeSwitchConfigFailed: {"OFPET_SWITCH_CONFIG_FAILED", []string{"OFPSCFC_BAD_FLAGS", "OFPSCFC_BAD_LEN", "OFPSCFC_EPERM"}},
	ErrorTypeRoleRequestFailed:  {"OFPET_ROLE_REQUEST_FAILED", []string{"OFPRRFC_STALE", "OFPRRFC_UNSUP", "OFPRRFC_BAD_ROLE"}},
	ErrorTypeMeterModFailed: {"OFPET_METER_MOD_FAILED", []string{
		"OFPMMFC_UNKNOWN", "OFPMMFC_METER_EXISTS", "OFPMMFC_INVALID_METER", "OFPMMFC_UNKNOWN_METER",
		"OFPMMFC_BAD_COMMAND", "OFPMMFC_BAD_FLAGS", "OFPMMFC_BAD_RATE", "OFPMMFC_BAD_BURST",
		"OFPMMFC_BAD_BAND", "OFPMMFC_BAD_BAND_VALUE", "OFPMMFC_OUT_OF_METERS", "OFPMMFC_OUT_OF_BANDS",
	}},
	ErrorTypeTableFeaturesFailed: {"OFPET_TABLE_FEATURES_FAILED", []string{
		"OFPTFFC_BAD_TABLE", "OFPTFFC_BAD_METADATA", "OFPTFFC_BAD_TYPE", "OFPTFFC_BAD_LEN",
		"OFPTFFC_BAD_ARGUMENT", "OFPTFFC_EPERM",
	}},
	ErrorTypeExperimenter: {"OFPET_EXPERIMENTER", nil},
}

// onfErrorNames are the errors of the ONF's extensions to OpenFlow 1.3 that
// this package speaks: the bundles of EXT-230, numbered from 2300.
var onfErrorNames = map[uint16]string{
	2300: "OFPBFC_UNKNOWN", 2301: "OFPBFC_EPERM", 2302: "OFPBFC_BAD_ID", 2303: "OFPBFC_BUNDLE_EXIST",
	2304: "OFPBFC_BUNDLE_CLOSED", 2305: "OFPBFC_OUT_OF_BUNDLES", 2306: "OFPBFC_BAD_TYPE", 2307: "OFPBFC_BAD_FLAGS",
	2308: "OFPBFC_MSG_BAD_LEN", 2309: "OFPBFC_MSG_BAD_XID", 2310: "OFPBFC_MSG_UNSUP", 2311: "OFPBFC_MSG_CONFLICT",
	2312: "OFPBFC_MSG_TOO_MANY", 2313: "OFPBFC_MSG_FAILED", 2314: "OFPBFC_TIMEOUT", 2315: "OFPBFC_BUNDLE_IN_PROGRESS",
}

// String returns the type's name in the specification.
func (t ErrorType) String() string {
	if info, ok := errorTable[t]; ok {
		return info.name
	}
	return fmt.Sprintf("error type %d", uint16(t))
}

// Error returns the name, so that a type can be the target of errors.Is.
func (t ErrorType) Error() string { return "openflow: " + t.String() }

// String returns the code's name in the specification.
func (c ErrorCode) String() string {
	codes := errorTable[c.Type()].codes
	if int(c.Code()) < len(codes) {
		return codes[c.Code()]
	}
	return fmt.Sprintf("%s code %d", c.Type().String(), c.Code())
}

// Error returns the name, so that a code can be the target of errors.Is.
func (c ErrorCode) Error() string { return "openflow: " + c.String() }
