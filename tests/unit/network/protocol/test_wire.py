"""The committed messages are those of wire.proto."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

from gapsl.network.protocol import wire_pb2 as wire

PROTO = Path(wire.__file__).with_name("wire.proto")
BLOCK = re.compile(r"(message|enum|oneof|service) (\w+) \{")
FIELD = re.compile(r"((?:repeated )?\w+(?:<\w+, \w+>)?)? ?\b(\w+) = (\d+);")


def written():
    """What the text says: (kind, name) of every block, (its block, type, name, number) of every field."""
    blocks, fields, open_blocks = set(), set(), []
    for line in PROTO.read_text().splitlines():
        code = line.split("//")[0].strip()
        if begun := BLOCK.match(code):
            kind, name = begun.groups()
            open_blocks.append(".".join([*open_blocks[-1:], name]) if kind != "oneof" else open_blocks[-1])
            blocks |= {(kind, open_blocks[-1])} if kind != "oneof" else set()
            if not code.endswith("}"):
                continue
        elif open_blocks and (field := FIELD.match(code)):
            kind, name, number = field.groups()
            fields.add((open_blocks[-1], kind, name, int(number)))
        if code.endswith("}"):
            open_blocks.pop()
    assert not open_blocks
    return blocks, fields


def generated():
    """The same of the committed stub."""
    blocks, fields = set(), set()

    def add_enums(enums, prefix=""):
        for enum in enums:
            blocks.add(("enum", prefix + enum.name))
            fields.update((prefix + enum.name, None, value.name, value.number) for value in enum.values)

    def add_message(message: Descriptor, prefix=""):
        if message.GetOptions().map_entry:
            return
        name = prefix + message.name
        blocks.add(("message", name))
        fields.update((name, type_of(field), field.name, field.number) for field in message.fields)
        add_enums(message.enum_types, name + ".")
        for nested in message.nested_types:
            add_message(nested, name + ".")

    file = wire.DESCRIPTOR
    add_enums(file.enum_types_by_name.values())
    for message in file.message_types_by_name.values():
        add_message(message)
    blocks |= {("service", name) for name in file.services_by_name}
    return blocks, fields


def type_of(field):
    """A field's type as the text writes it."""
    if field.message_type and field.message_type.GetOptions().map_entry:
        return f"map<{', '.join(type_of(entry) for entry in field.message_type.fields)}>"
    named = field.message_type or field.enum_type
    name = named.name if named else FieldDescriptorProto.Type.Name(field.type)[len("TYPE_") :].lower()
    return f"repeated {name}" if field.is_repeated else name


def test_every_message_enum_and_field_of_the_text_is_in_the_stub_and_no_other():
    blocks, fields = written()
    assert (blocks, fields) == generated()
    assert ("message", "Tensor") in blocks and ("enum", "Evaluate.Set") in blocks
    assert ("Tensor", "repeated int64", "shape", 2) in fields and ("Codec", None, "INT8", 4) in fields
    assert ("Share", "map<int32, double>", "weights", 2) in fields


def test_the_stub_is_what_protoc_makes_of_the_text(tmp_path):
    if importlib.util.find_spec("grpc_tools") is None:
        pytest.skip("grpcio-tools is not installed: protoc cannot be asked; `make proto` installs its own")
    out = tmp_path / "descriptors"
    root = PROTO.parents[3]
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{root}", f"--descriptor_set_out={out}"]
    subprocess.run([*command, str(PROTO.relative_to(root))], check=True, cwd=root)
    (parsed,) = FileDescriptorSet.FromString(out.read_bytes()).file
    committed = FileDescriptorProto.FromString(wire.DESCRIPTOR.serialized_pb)
    for file in (parsed, committed):
        without_json_names(file.message_type)  # protoc writes them in one of the two
    assert committed == parsed


def without_json_names(messages):
    for message in messages:
        for field in message.field:
            field.ClearField("json_name")
        without_json_names(message.nested_type)


@pytest.mark.parametrize(
    "kind", [wire.FromDevice, wire.ToDevice, wire.FromParameterClient, wire.ToParameterClient]
)
def test_part_is_field_15_of_every_stream(kind):
    assert kind.DESCRIPTOR.fields_by_name["part"].containing_oneof.name == "message"
    assert kind.PART_FIELD_NUMBER == 15
    assert wire.Part.DATA_FIELD_NUMBER == 1
