"""Caffe's published message types, as far as weights need them, for google.protobuf."""

from types import SimpleNamespace

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_Field = descriptor_pb2.FieldDescriptorProto
_INT32, _INT64 = _Field.TYPE_INT32, _Field.TYPE_INT64
_FLOAT, _DOUBLE, _STRING = _Field.TYPE_FLOAT, _Field.TYPE_DOUBLE, _Field.TYPE_STRING

# message: field: (number, type or message, repeated)
_MESSAGES: dict[str, dict[str, tuple[int, int | str, bool]]] = {
    "BlobShape": {"dim": (1, _INT64, True)},
    "BlobProto": {
        "num": (1, _INT32, False),
        "channels": (2, _INT32, False),
        "height": (3, _INT32, False),
        "width": (4, _INT32, False),
        "data": (5, _FLOAT, True),
        "diff": (6, _FLOAT, True),
        "shape": (7, "BlobShape", False),
        "double_data": (8, _DOUBLE, True),
    },
    "LayerParameter": {
        "name": (1, _STRING, False),
        "type": (2, _STRING, False),
        "loss_weight": (5, _FLOAT, True),
        "blobs": (7, "BlobProto", True),
        "phase": (10, _INT32, False),
    },
    "V1LayerParameter": {
        "name": (4, _STRING, False),
        "type": (5, _INT32, False),
        "blobs": (6, "BlobProto", True),
    },
    "NetParameter": {
        "name": (1, _STRING, False),
        "layers": (2, "V1LayerParameter", True),
        "layer": (100, "LayerParameter", True),
    },
}


def messages(packed: bool = True) -> SimpleNamespace:
    """Message classes by name; repeated numbers are packed, as published, or written singly."""
    file = descriptor_pb2.FileDescriptorProto(name="caffe.proto", package="caffe", syntax="proto2")
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for name, (number, kind, repeated) in fields.items():
            label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
            field = message.field.add(name=name, number=number, label=label)
            if isinstance(kind, str):
                field.type, field.type_name = _Field.TYPE_MESSAGE, f".caffe.{kind}"
            else:
                field.type = kind
                field.options.packed = packed and repeated and kind != _STRING
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return SimpleNamespace(
        **{
            name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"caffe.{name}"))
            for name in _MESSAGES
        }
    )
