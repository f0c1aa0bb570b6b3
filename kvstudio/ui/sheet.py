"""The application's one style sheet, with the names of Theme's roles where colours go."""

SHEET = """
QMainWindow, QDialog {{ background: {ground}; }}
QScrollArea, QScrollArea > QWidget, QScrollArea > QWidget > QWidget {{ background: transparent; }}
QPushButton {{ background: {canvas}; color: {ink}; border: 1px solid {control_edge}; border-radius: 5px;
  padding: 5px 12px; min-height: {button_line}; }}
QPushButton:hover {{ background: {control_hover}; }}
QPushButton:pressed, QPushButton:checked {{ background: {control_pressed}; }}
QPushButton:disabled {{ color: {faint}; border-color: {hairline}; }}
QPushButton:focus {{ border: 2px solid {accent_text}; padding: 4px 11px; }}
QPushButton[primary="true"] {{ background: {accent_fill}; color: {on_accent}; border-color: {accent_fill};
  font-weight: 600; }}
QPushButton[primary="true"]:hover {{ background: {primary_hover}; border-color: {primary_hover}; }}
QPushButton[primary="true"]:pressed {{ background: {primary_pressed}; }}
QPushButton[primary="true"]:focus {{ border: 2px solid {ink}; }}
QPushButton[primary="true"]:disabled {{ background: {control_pressed}; color: {faint}; border-color: {hairline}; }}
QPushButton[link="true"] {{ background: transparent; color: {accent_text}; border: 1px solid transparent;
  border-radius: 3px; padding: 1px; font-weight: 500; }}
QPushButton[link="true"]:hover {{ text-decoration: underline; }}
QPushButton[link="true"]:focus {{ border: 2px solid {accent_text}; padding: 0px; }}
QPushButton[link="true"]:disabled {{ color: {faint}; }}
QToolButton {{ background: transparent; color: {ink}; border: 1px solid transparent; border-radius: 5px;
  padding: 5px; }}
QToolButton:hover {{ background: {ground_hover}; }}
QToolButton:pressed, QToolButton:checked {{ background: {control_pressed}; }}
QToolButton[disclosure="true"]:checked {{ background: transparent; }}
QToolButton[disclosure="true"]:hover {{ background: {ground_hover}; }}
QToolButton:focus {{ border: 2px solid {accent_text}; padding: 4px; }}
QToolButton:disabled {{ color: {faint}; }}
QToolButton::menu-indicator {{ image: none; width: 0; }}
QComboBox {{ background: {canvas}; color: {ink}; border: 1px solid {control_edge}; border-radius: 5px;
  padding: 3px 6px; min-height: {line}; max-height: {line}; }}
QComboBox:focus {{ border: 2px solid {accent_text}; padding: 2px 5px; }}
QComboBox:disabled {{ color: {faint}; border-color: {hairline}; }}
QComboBox::drop-down {{ border: none; width: 18px; }}
QComboBox::down-arrow {{ image: url(kvstudio:arrow-down-{scheme}.svg); width: 12px; height: 12px; }}
QComboBox QAbstractItemView {{ background: {canvas}; color: {ink}; border: 1px solid {control_edge};
  selection-background-color: {checked_fill}; selection-color: {ink}; outline: none; }}
QLineEdit, QPlainTextEdit[field="true"] {{ background: {canvas}; color: {ink}; border: 1px solid {control_edge};
  border-radius: 5px; padding: 3px 7px; selection-background-color: {accent_fill}; selection-color: {on_accent}; }}
QLineEdit {{ min-height: {line}; max-height: {line}; placeholder-text-color: {muted}; }}
QLineEdit:focus, QPlainTextEdit[field="true"]:focus {{ border: 2px solid {accent_text}; padding: 2px 6px; }}
QLineEdit:disabled {{ color: {faint}; border-color: {hairline}; }}
QAbstractSpinBox {{ background: {canvas}; color: {ink}; border: 1px solid {control_edge}; border-radius: 5px;
  padding: 3px 6px; min-height: {line}; max-height: {line}; selection-background-color: {accent_fill};
  selection-color: {on_accent}; }}
QAbstractSpinBox:focus {{ border: 2px solid {accent_text}; padding: 2px 5px; }}
QAbstractSpinBox:disabled {{ color: {faint}; border-color: {hairline}; }}
QAbstractSpinBox::up-button, QAbstractSpinBox::down-button {{ border: none; background: transparent; width: 16px; }}
QAbstractSpinBox::up-arrow {{ image: url(kvstudio:arrow-up-{scheme}.svg); width: 10px; height: 10px; }}
QAbstractSpinBox::down-arrow {{ image: url(kvstudio:arrow-down-{scheme}.svg); width: 10px; height: 10px; }}
QSlider::groove:horizontal {{ height: 4px; border-radius: 2px; background: {control_edge}; }}
QSlider::sub-page:horizontal {{ height: 4px; border-radius: 2px; background: {accent_fill}; }}
QSlider::handle:horizontal {{ width: 14px; height: 14px; margin: -6px 0; border-radius: 8px;
  background: {knob}; border: 1px solid {control_edge}; }}
QSlider::handle:horizontal:focus {{ border: 2px solid {accent_text}; width: 12px; height: 12px; }}
QSlider::sub-page:horizontal:disabled {{ background: {hairline}; }}
QCheckBox {{ spacing: 8px; }}
QCheckBox::indicator {{ width: 14px; height: 14px; border: 1px solid {control_edge}; border-radius: 4px;
  background: {canvas}; }}
QCheckBox::indicator:hover {{ background: {control_hover}; }}
QCheckBox::indicator:checked {{ background: {accent_fill}; border-color: {accent_fill};
  image: url(kvstudio:check-white.svg); }}
QCheckBox::indicator:focus {{ border: 2px solid {accent_text}; width: 12px; height: 12px; }}
QCheckBox::indicator:disabled {{ border-color: {hairline}; }}
QScrollBar:vertical {{ background: transparent; width: 10px; margin: 0; }}
QScrollBar:horizontal {{ background: transparent; height: 10px; margin: 0; }}
QScrollBar::handle {{ background: {scroll}; border-radius: 3px; margin: 2px; min-height: 24px; min-width: 24px; }}
QScrollBar::handle:hover {{ background: {control_edge}; }}
QScrollBar::add-line, QScrollBar::sub-line, QScrollBar::add-page, QScrollBar::sub-page {{ background: none;
  border: none; width: 0; height: 0; }}
QToolTip {{ background: {canvas}; color: {ink}; border: 1px solid {control_edge}; padding: 6px 8px; }}
"""
