"""AddMetadata, AddTags, AddProperties, TagAs...: values pass through, the schema knows more."""

TAGS = {
    "TagAsUserID": ["user", "id", "user_id"],
    "TagAsItemID": ["item", "id", "item_id"],
    "TagAsUserFeatures": ["user"],
    "TagAsItemFeatures": ["item"],
}


def fit(table, columns, settings):
    return columns


def transform(columns, table):
    return {name: (table.dtypes[name], table[name]) for name in columns}
